// The table of results: groups of columns, sorting, intervals on hover and focus.

const table = { sort: null, descending: true, shown: null };

/** All columns of a block; `get` gives what is sorted by, `text` what is shown, `tip` the interval behind it, `key` its mark. */
function columns(block) {
  const rows = block.rows;
  const scored = (group, name, key, values, category) => ({
    group, name, key, category, scored: true,
    get: (i) => (values(i) ? values(i)[0] : null),
    text: (i) => (values(i) ? fixed(values(i)[0]) : ""),
    tip: (i) => (values(i) ? `${name}: ${interval(values(i))}${values(i)[3] ? `\n${values(i)[3]} samples` : ""}` : `${name}: no result`),
  });
  const plain = (group, name, key, get, text, tip = null, up = false) => ({
    group, name, key, get, up, text: (i) => text(get(i), i), tip: (i) => tip && get(i) !== null ? tip(i) : null,
  });
  const level = percent(block.level, 0);
  const all = [
    scored("Averages", "Avg", "average", (i) => rows[i].average),
    scored("Averages", "Category avg", "category_average", (i) => rows[i].category_average),
    plain("Averages", "Δ full", "delta", (i) => (rows[i].delta ? rows[i].delta[0] : null),
      (v, i) => (v === null ? "" : fixed(v, 2, true) + (rows[i].p !== null && rows[i].p < 0.05 ? " *" : "")),
      (i) => rows[i].identical ? "Δ to full: none, the texts are identical" : `Δ to full: ${interval(rows[i].delta, 2, true)} (${level} paired interval)\np = ${short(rows[i].p)} (Holm)`),
    plain("Averages", "Avg rank", "rank", (i) => rows[i].rank, (v) => (v === null ? "" : fixed(v)), null, true),
    ...block.categories.map((name, c) => scored("Categories", name, `categories${c}`, (i) => rows[i].categories[c])),
    ...block.tasks.map((task, t) => scored("Tasks", task.name, `tasks${t}`, (i) => rows[i].tasks[t], task.category)),
    ...block.buckets.map((name, b) => plain("Lengths", name, `buckets${b}`, (i) => rows[i].buckets[b], (v) => (v === null ? "" : fixed(v)))),
    ...block.statistics.map((column, s) => plain("Statistics", column.name, null, (i) => rows[i].statistics[s],
      (v) => (typeof v === "string" ? v : v === null ? "" : fixed(v, column.digits, column.signed)), null, column.up)),
    ...block.fidelity.map((column, f) => plain("Fidelity", column.name, `fidelity${f}`, (i) => (rows[i].fidelity[f] ? rows[i].fidelity[f][0] : null),
      (v) => (v === null ? "" : fixed(v, column.digits)), (i) => `${column.name}: ${interval(rows[i].fidelity[f], column.digits)}`, column.up)),
    plain("Cost", "Kept", null, (i) => block.arms[i].kept, (v, i) => (v === null ? "" : percent(v, 2) + (block.arms[i].exact ? "" : " ≈"))),
    plain("Cost", "KV cache, MiB", null, (i) => rows[i].mib, (v) => (v === null ? "" : fixed(v, 2)), null, true),
  ];
  return all.filter((column) => rows.some((_, i) => column.get(i) !== null));
}

function setupTable(block) {
  const all = columns(block);
  const groups = [...new Set(all.map((column) => column.group))];
  const narrow = matchMedia("(max-width: 760px)").matches;
  table.shown = new Set(narrow ? ["Averages", "Categories"] : ["Averages", "Tasks"]);
  table.sort = null;
  const draw = () => drawTable(block, all);
  $("groups").replaceChildren(...groups.map((name) => el("button", {
    type: "button", "aria-pressed": String(table.shown.has(name)),
    onclick: (event) => {
      if (!table.shown.delete(name)) table.shown.add(name);
      event.currentTarget.setAttribute("aria-pressed", String(table.shown.has(name)));
      draw();
    },
  }, name)));
  fill($("table-ratio"), ratioOptions(block, true));
  $("table-ratio").onchange = draw;
  $("table-hint").textContent = "Bold: best of its ratio, underlined: second; neither where all are equal, nor for a score of 0. Shade: gain (blue) or loss (orange) against the full cache. "
    + (block.rows.some((row) => row.p !== null) ? "*: differs from the full cache (Holm-corrected p below 0.05). " : "")
    + (block.arms.some((arm) => !arm.exact) ? "≈: does not meet the budget exactly. " : "")
    + "Point at a number for its interval; arrow keys move between cells.";
  draw();
}

function ratioOptions(block, all) {
  const ratios = [...new Set(byRatio(block).map((i) => block.arms[i]).filter((arm) => arm.value < 1).map((arm) => arm.ratio))];
  return [...(all ? [["", "all"]] : []), ...ratios.map((ratio) => [ratio, ratio])];
}

/** Arms as the text tables order them: the full cache, then ratio after ratio. */
function byRatio(block) {
  const place = (i) => (i === block.full ? 0 : block.arms[i].value);
  return block.arms.map((_, i) => i).sort((a, b) => place(a) - place(b) || a - b);
}

function ofRatio(block, ratio) {
  return byRatio(block).filter((i) => !ratio || block.arms[i].value === 1 || block.arms[i].ratio === ratio);
}

function drawTable(block, all) {
  const shown = all.filter((column) => table.shown.has(column.group));
  let order = ofRatio(block, $("table-ratio").value);
  if (table.sort) order = sorted(order, table.sort === "method" ? { get: (i) => block.arms[i].label } : all.find((column) => column.name === table.sort));
  const body = order.map((i, place) => {
    const arm = block.arms[i];
    const name = el("th", { class: `method ${seriesClass(block, arm)}`, scope: "row" }, arm.label, arm.value === 1 ? null : el("span", { class: "badge" }, arm.ratio));
    describe(name, [armName(arm), arm.params, arm.note].filter(Boolean).join("\n"));
    const next = block.arms[order[place + 1]];
    return el("tr", { class: !table.sort && next && next.ratio !== arm.ratio ? "last" : "" }, name, ...shown.map((column, c) => cell(block, column, i, starts(shown, c))));
  });
  $("table").replaceChildren(el("caption", { class: "visually-hidden" }, "Scores of each method"), head(block, shown, all), el("tbody", {}, ...body));
  roving($("table"));
}

function starts(shown, c) {
  return c === 0 || shown[c].group !== shown[c - 1].group || shown[c].category !== shown[c - 1].category;
}

/** Descending or ascending, missing values last, ties in the table's own order. */
function sorted(order, column) {
  const sign = table.descending ? -1 : 1;
  const value = (i) => column.get(i);
  return [...order].sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y), "en", { numeric: true }) : x - y) || a - b;
  });
}

function cell(block, column, i, start) {
  const node = el("td", { tabindex: "-1", class: [start && "start", column.scored && "score", block.rows[i].marks[column.key]].filter(Boolean).join(" ") }, column.text(i));
  const tip = column.tip(i);
  if (tip) describe(node, `${armName(block.arms[i])}\n${tip}`);
  if (column.scored && block.full !== null && i !== block.full && column.get(i) !== null && column.get(block.full) !== null) {
    const change = column.get(i) - column.get(block.full);
    node.style.setProperty("--hue", `var(--${change < 0 ? "loss" : "gain"})`);
    node.style.setProperty("--shade", Math.min(0.42, Math.abs(change) / 30).toFixed(3));
  }
  return node;
}

function head(block, shown, all) {
  const sortable = (name, start, up) => {
    const on = table.sort === name;
    return el("th", { scope: "col", class: start ? "start" : "", "aria-sort": on ? (table.descending ? "descending" : "ascending") : "none" },
      el("button", { type: "button", "data-sort": name, onclick: () => sortBy(name, up, () => drawTable(block, all)) }, name === "method" ? "Method" : breakable(name)));
  };
  const method = sortable("method", false, true);
  method.classList.add("method");
  const spans = [];
  shown.forEach((column, c) => {
    const name = column.category ?? column.group;
    if (starts(shown, c)) spans.push([name, 1]);
    else spans[spans.length - 1][1]++;
  });
  return el("thead", {},
    el("tr", {}, el("th", { class: "method category" }), ...spans.map(([name, span]) => el("th", { class: "category start", colspan: span, scope: "colgroup" }, name))),
    el("tr", {}, method, ...shown.map((column, c) => sortable(column.name, starts(shown, c), column.up))));
}

/** A long name may wrap after its underscores and hyphens, and before the "qa" of many tasks. */
function breakable(name) {
  const node = document.createDocumentFragment();
  for (const part of name.split(/(?<=[_-])|(?=m?qa(?:_|$))/)) node.append(part, el("wbr"));
  return node;
}

function sortBy(name, up, draw) {
  if (table.sort === name) table.descending = !table.descending;
  else [table.sort, table.descending] = [name, !up];
  draw();
  const button = document.querySelector(`#table button[data-sort="${CSS.escape(name)}"]`);
  if (button) button.focus();
}

/** One tab stop for all cells; arrow keys, Home and End move it. */
function roving(node) {
  const rows = [...node.tBodies[0].rows].map((row) => [...row.cells].slice(1));
  if (!rows.length || !rows[0].length) return;
  rows[0][0].tabIndex = 0;
  node.tBodies[0].onkeydown = (event) => {
    const r = rows.findIndex((row) => row.includes(event.target));
    if (r < 0) return;
    const c = rows[r].indexOf(event.target);
    const to = { ArrowDown: [r + 1, c], ArrowUp: [r - 1, c], ArrowRight: [r, c + 1], ArrowLeft: [r, c - 1], Home: [r, 0], End: [r, rows[r].length - 1] }[event.key];
    const next = to && rows[to[0]] && rows[to[0]][to[1]];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}
