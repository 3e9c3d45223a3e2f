// The browser of samples: filters, pages of a list, one sample with all its predictions.

const PAGE = 25;
const END = 10; // characters of an id that are always shown
const browser = { block: null, found: [], page: 0, chosen: null, texts: null };

/** Values of a column of cells are stored flat: sample after sample, arm after arm. */
function at(column, sample, arm) {
  return browser.block.cells[column][sample * browser.block.arms.length + arm];
}

function setupSamples(block) {
  Object.assign(browser, { block, found: [], page: 0, chosen: null, texts: null });
  $("filters").reset();
  fill($("filter-task"), [["", "all"], ...block.tasks.map((task, t) => [t, task.name])], "");
  fill($("filter-method"), [["", "all"], ...block.series.map((style, s) => [s, style.label])], "");
  fill($("filter-ratio"), ratioOptions(block, true), "");
  $("filters").onsubmit = (event) => event.preventDefault();
  $("filters").onchange = (event) => { if (event.target.id !== "filter-text") search(); };
  $("filter-text").oninput = debounce(search, 120);
  $("previous").onclick = () => turn(-1);
  $("next").onclick = () => turn(1);
  $("list").onkeydown = walk;
  search();
}

/** Arms that the method and ratio filters leave; the full cache only by its own name, or where nothing is chosen. */
function chosenArms() {
  const { arms } = browser.block, method = $("filter-method").value, ratio = $("filter-ratio").value;
  return arms.map((_, i) => i).filter((i) => (method === "" || arms[i].series === Number(method)) && (ratio === "" || arms[i].ratio === ratio || (method !== "" && arms[i].value === 1)));
}

/** Differences to the full cache of a sample over some arms, as [difference, arm]; empty where full has no score. */
function changes(sample, arms) {
  const { full } = browser.block, base = full === null ? null : at("score", sample, full);
  if (base === null) return [];
  return arms.filter((arm) => arm !== full && at("score", sample, arm) !== null).map((arm) => [at("score", sample, arm) - base, arm]);
}

function search() {
  const { block } = browser, arms = chosenArms();
  const task = $("filter-task").value, text = $("filter-text").value.trim().toLowerCase();
  const lost = $("filter-lost").checked, failed = $("filter-failed").checked, order = $("filter-order").value;
  const worst = (s) => Math.min(...changes(s, arms).map(([change]) => change), Infinity);
  const best = (s) => Math.max(...changes(s, arms).map(([change]) => change), -Infinity);
  browser.found = block.samples.map((_, s) => s).filter((s) =>
    (task === "" || block.samples[s].task === Number(task))
    && arms.some((arm) => at("score", s, arm) !== null || at("error", s, arm) !== null)
    && (!failed || arms.some((arm) => at("error", s, arm) !== null || at("looped", s, arm)))
    && (!lost || worst(s) < 0)
    && (!text || contains(s, arms, text)));
  if (order !== "file") browser.chosen = null;
  if (order === "loss") browser.found = ordered(browser.found, worst, 1);
  if (order === "gain") browser.found = ordered(browser.found, best, -1);
  browser.page = 0;
  drawList();
  select(browser.found.slice(0, PAGE).includes(browser.chosen) ? browser.chosen : browser.found[0] ?? null, false);
}

function ordered(samples, value, sign) {
  const values = new Map(samples.map((s) => [s, value(s)]));
  return [...samples].sort((a, b) => {
    const x = values.get(a), y = values.get(b);
    return x === y ? a - b : sign * (x < y ? -1 : 1);
  });
}

function contains(sample, arms, text) {
  browser.texts ??= browser.block.samples.map((s) => [s.id, s.question, ...s.answers].join("\n").toLowerCase());
  return browser.texts[sample].includes(text)
    || arms.some((arm) => (at("prediction", sample, arm) ?? "").toLowerCase().includes(text));
}

function turn(step) {
  browser.page += step;
  drawList();
}

function drawList() {
  const { block, found, page } = browser, pages = Math.max(1, Math.ceil(found.length / PAGE));
  const first = page * PAGE, shown = found.slice(first, first + PAGE), arms = chosenArms();
  $("previous").disabled = page === 0;
  $("next").disabled = page >= pages - 1;
  $("count").textContent = found.length
    ? `${(first + 1).toLocaleString("en")}–${(first + shown.length).toLocaleString("en")} of ${found.length.toLocaleString("en")}`
    : "no sample matches";
  $("list").replaceChildren(...shown.map((s) => el("li", {}, el("button", {
    type: "button", "data-sample": s, "aria-current": s === browser.chosen ? "true" : null, onclick: () => select(s, true),
  }, el("span", { class: "top" }, middle(`${block.tasks[block.samples[s].task].name} · ${block.samples[s].id}`), verdict(s, arms)),
  el("span", { class: "text" }, headline(block.samples[s]))))));
}

/** Text whose middle is left out where it is too long: ids differ at their ends. */
function middle(text) {
  return el("span", { class: "middle", title: text }, el("span", { class: "text" }, text.slice(0, -END)), el("span", { class: "end" }, text.slice(-END)));
}

function headline(sample) {
  return sample.question.trim() || `→ ${sample.answers[0] ?? ""}`;
}

/** The largest loss (or, without one, gain) among the arms, in points. */
function verdict(sample, arms) {
  const all = changes(sample, arms);
  if (!all.length) return null;
  const [change, arm] = all.reduce((a, b) => (b[0] < a[0] ? b : a));
  const [top, best] = all.reduce((a, b) => (b[0] > a[0] ? b : a));
  if (change < 0) return badge(change, arms.length > 1 ? browser.block.arms[arm] : null);
  return badge(top, arms.length > 1 && top > 0 ? browser.block.arms[best] : null);
}

function badge(change, arm = null) {
  const kind = change < 0 ? "loss" : change > 0 ? "gain" : "";
  return el("span", { class: `badge ${kind}` }, `${change < 0 ? "▼ " : change > 0 ? "▲ " : ""}${fixed(100 * change, 1, true)}${arm ? ` ${armName(arm)}` : ""}`);
}

function walk(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...$("list").querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function select(sample, move) {
  browser.chosen = sample;
  for (const button of $("list").querySelectorAll("button")) {
    if (Number(button.dataset.sample) === sample) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  drawSample(sample);
  if (move && matchMedia("(max-width: 760px)").matches) {
    $("detail").focus({ preventScroll: true });
    $("detail").scrollIntoView();
  }
}

function drawSample(s) {
  if (s === null) return $("detail").replaceChildren(el("p", { class: "empty" }, "Nothing matches these filters."));
  const { block } = browser, sample = block.samples[s], task = block.tasks[sample.task];
  const chosen = chosenArms().filter((arm) => arm !== block.full);
  const arms = block.full === null ? chosen : [block.full, ...chosen];
  $("detail").replaceChildren(
    el("div", { class: "card" },
      el("h3", {}, `${task.name} · ${sample.id}`),
      el("p", { class: "line-of-facts" }, `${task.category} · scored by ${task.metric} · n = ${sample.n.toLocaleString("en")} prompt tokens · length ${sample.length.toLocaleString("en")} (${block.counted})`),
      el("h3", {}, "Question"), sample.question.trim() ? el("p", { class: "text-block", tabindex: "0" }, sample.question) : el("p", { class: "empty" }, "none: the task is in the context"),
      el("h3", {}, sample.answers.length === 1 ? "Gold answer" : `${sample.answers.length} gold answers`),
      el("ul", { class: "gold text-block" }, ...sample.answers.map((answer) => el("li", {}, answer)))),
    el("label", { class: "check" }, el("input", { type: "checkbox", id: "show-diff", checked: browser.plain ? null : true, onchange: (event) => { browser.plain = !event.target.checked; drawSample(s); $("show-diff").focus(); } }), " Mark differences to the full cache"),
    el("div", { class: "answers" }, ...arms.map((arm) => prediction(s, arm))));
}

function prediction(s, i) {
  const { block } = browser, arm = block.arms[i], score = at("score", s, i), error = at("error", s, i);
  const change = changes(s, [i])[0];
  const text = at("prediction", s, i), base = block.full === null ? null : at("prediction", s, block.full);
  const compare = !browser.plain && i !== block.full && base !== null && text !== null;
  const body = error !== null ? el("p", { class: "prediction error" }, error)
    : text === null ? el("p", { class: "empty" }, "not computed yet")
    : text === "" && !compare ? el("p", { class: "empty" }, "empty")
    : el("p", { class: "prediction", tabindex: "0", "aria-label": `Prediction of ${armName(arm)}` }, ...(compare ? marked(base, text) : [text]));
  return el("div", { class: `card ${seriesClass(block, arm)}` },
    el("h3", {}, armName(arm), el("span", {}, score === null ? null : el("span", { class: "badge" }, fixed(100 * score, 1)), " ", change && i !== block.full ? badge(change[0]) : null)),
    body,
    error === null && text !== null ? el("details", { open: false }, el("summary", {}, `${short(at("kept", s, i))} entries kept, ${at("generated", s, i)} generated${at("looped", s, i) ? ", ends in a loop" : ""}`), numbers(s, i)) : null);
}

function numbers(s, i) {
  const { block } = browser, kept = at("kept", s, i), total = at("total", s, i);
  const facts = [
    ["Kept of all entries", `${short(kept)} of ${short(total)} (${percent(total ? kept / total : null, 2)})`],
    ["KV cache", `${fixed(at("kv_bytes", s, i) / 2 ** 20, 2)} MiB`],
    ["Generated", `${short(at("generated", s, i))} tokens`],
    ["Decode batch", `${fixed(at("batch_seconds", s, i), 2)} s with ${at("batch_rows", s, i)} rows (not a speed)`],
    ...Object.entries(block.cells.more).map(([name, column]) => [name, short(column[s * block.arms.length + i])]),
  ];
  return el("dl", { class: "numbers" }, ...facts.filter(([, value]) => value !== "–").flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
