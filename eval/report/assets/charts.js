// Three charts in SVG: lines with bands, rows with intervals, heat map. Each fits the width of its host.

const MARKS = {
  o: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  s: (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  "^": (r) => `M0,${-1.2 * r}L${1.1 * r},${r}H${-1.1 * r}z`,
  D: (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
  v: (r) => `M0,${1.2 * r}L${1.1 * r},${-r}H${-1.1 * r}z`,
  P: (r) => `M${-r},${-r / 2.4}h${r - r / 2.4}v${r / 2.4 - r}h${r / 1.2}v${r - r / 2.4}h${r - r / 2.4}v${r / 1.2}h${r / 2.4 - r}v${r - r / 2.4}h${-r / 1.2}v${r / 2.4 - r}h${r / 2.4 - r}z`,
};

function mark(style, x, y, r = 4.5) {
  return svg("path", { class: style.hollow ? "mark hollow" : "mark", d: MARKS[style.mark](r), transform: `translate(${x.toFixed(1)},${y.toFixed(1)})` });
}

function swatch(style) {
  return svg("svg", { class: style.css, width: 30, height: 14, viewBox: "0 0 30 14", "aria-hidden": "true" },
    svg("path", { class: "line", d: "M0,7H30", "stroke-dasharray": style.dash }), mark(style, 15, 7));
}

/** Round steps that cover [low, high]. */
function ticks(low, high, count = 5) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => span / s <= count) ?? span;
  const values = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) values.push(Number(v.toPrecision(12)));
  return values;
}

/** Range of an axis with some room, which ends at `top`, a value that no measure of this kind exceeds. */
function padded(values, top = null) {
  const low = Math.min(...values), high = Math.max(...values);
  const room = low === high ? Math.abs(low) / 10 || 1 : (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, top !== null && high <= top ? Math.min(high + room, top) : high + room];
}

const pen = document.createElement("canvas").getContext("2d");

/** Width of a name in a chart, in pixels. */
function widthOf(text) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Name with as much of its middle left out as does not fit: what tells names apart stands at their ends. */
function fittingName(text, room) {
  const cut = (n) => `${text.slice(0, Math.ceil(n / 2))}…${text.slice(text.length - Math.floor(n / 2))}`;
  if (widthOf(text) <= room) return text;
  let kept = text.length - 1;
  while (kept > 2 && widthOf(cut(kept)) > room) kept--;
  return cut(kept);
}

function nameOf(text, x, y, room, anchor = "end") {
  return svg("text", { class: "name", x, y, "text-anchor": anchor }, svg("title", {}, text), fittingName(text, room));
}

function plain(value) {
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/** Draw into the host now and whenever its width changes. */
function fitted(host, draw) {
  let width = 0;
  if (host.watcher) host.watcher.disconnect();
  host.watcher = new ResizeObserver(() => {
    const now = Math.floor(host.clientWidth);
    if (now && now !== width) {
      width = now;
      host.replaceChildren(draw(width));
    }
  });
  host.watcher.observe(host);
}

/**
 * Lines. `lines`: [{name, style, points: [[x, mean, low, high], ...]}]; `reference`: {name, style, value: [mean, low, high]}
 * is drawn across, its name on the right. `axes`: {x, label, xs (ticks), height, top, format}.
 */
function lineChart(host, lines, axes, reference = null) {
  fitted(host, (width) => {
    const small = width < 360, height = axes.height ?? 300;
    const box = { left: 52, right: width - (reference ? widthOf(reference.name) + 10 : 12), top: 8, bottom: height - (axes.x ? 38 : 24) };
    const all = lines.flatMap((line) => line.points);
    const xs = all.map((point) => point[0]);
    const ys = all.flatMap((p) => [p[1], p[2] ?? p[1], p[3] ?? p[1]]).concat(reference ? reference.value.filter((v) => v !== null).slice(0, 3) : []);
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = padded(ys, axes.top);
    const margin = x1 > x0 ? 0 : 0.5;
    const X = (x) => box.left + 10 + ((x - x0 + margin) / (x1 - x0 + 2 * margin)) * (box.right - box.left - 20);
    const Y = (y) => box.bottom - ((y - y0) / (y1 - y0)) * (box.bottom - box.top);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": `${axes.label}. ${lines.length} series; arrow keys read the points.` });
    for (const y of ticks(y0, y1, small ? 4 : 6))
      root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: Y(y), y2: Y(y) }), svg("text", { x: box.left - 6, y: Y(y) + 4, "text-anchor": "end" }, plain(y)));
    const shown = axes.xs ? thinned(axes.xs, (box.right - box.left) / 34) : ticks(x0, x1, small ? 4 : 8);
    for (const x of shown) root.append(svg("text", { x: X(x), y: box.bottom + 16, "text-anchor": "middle" }, plain(x)));
    if (axes.x) root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, axes.x));
    if (reference) drawReference(root, reference, box, Y);
    const places = [];
    for (const line of lines) drawLine(root, line, X, Y, places, small ? 3.2 : 4.5);
    explore(root, places, axes);
    return root;
  });
}

function thinned(values, room) {
  const every = Math.max(1, Math.ceil(values.length / room));
  return values.filter((_, i) => i % every === 0);
}

function drawReference(root, { name, style, value }, box, Y) {
  const group = svg("g", { class: style.css });
  if (value[1] !== null && value[1] !== undefined) group.append(svg("rect", { class: "band", x: box.left, width: box.right - box.left, y: Y(value[2]), height: Y(value[1]) - Y(value[2]) }));
  group.append(svg("path", { class: "line", d: `M${box.left},${Y(value[0])}H${box.right}`, "stroke-dasharray": "7 4" }),
    svg("text", { class: "name", x: box.right + 5, y: Y(value[0]) + 4 }, name));
  root.append(group);
}

function drawLine(root, line, X, Y, places, radius) {
  const points = line.points.map((p) => [X(p[0]), Y(p[1]), p[2] === null ? null : Y(p[2]), p[3] === null ? null : Y(p[3])]);
  const group = svg("g", { class: line.style.css });
  const path = (side) => points.map((p) => `${p[0].toFixed(1)},${p[side].toFixed(1)}`);
  const banded = points.every((p) => p[2] !== null);
  if (banded && points.length > 1) group.append(svg("path", { class: "band", d: `M${path(3).join("L")}L${path(2).reverse().join("L")}z` }));
  if (banded && points.length === 1) group.append(svg("path", { class: "whisker", d: `M${points[0][0]},${points[0][2]}V${points[0][3]}` }));
  group.append(svg("path", { class: "line", d: `M${path(1).join("L")}`, "stroke-dasharray": line.style.dash }));
  points.forEach((p, i) => {
    const node = mark(line.style, p[0], p[1], radius);
    group.append(node);
    places.push({ node, x: p[0], y: p[1], line, point: line.points[i], at: i });
  });
  root.append(group);
}

/** The nearest point answers the pointer; left and right walk along a line, up and down change the line. */
function explore(root, places, axes) {
  let active = null;
  const read = (place) => `${place.line.name}\n${axes.x ? `${axes.x.toLowerCase()} ${plain(place.point[0])}\n` : ""}${axes.format(place.point.slice(1))}`;
  const choose = (place) => {
    if (active) active.node.classList.remove("active");
    active = place;
    place.node.classList.add("active");
  };
  const leave = () => {
    if (active) active.node.classList.remove("active");
    hideTip();
  };
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const distance = (p) => (p.x - event.clientX + box.left) ** 2 + (p.y - event.clientY + box.top) ** 2;
    const nearest = places.reduce((best, p) => (distance(p) < distance(best) ? p : best), places[0]);
    if (nearest && distance(nearest) < 3600) {
      choose(nearest);
      showTip(read(nearest), event.clientX, event.clientY);
    } else if (!tip.anchor) leave();
  });
  root.addEventListener("pointerleave", () => { if (!tip.anchor) leave(); });
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move || !places.length) return;
    event.preventDefault();
    const lines = [...new Set(places.map((p) => p.line))];
    const line = active ? lines[(lines.indexOf(active.line) + move[1] + lines.length) % lines.length] : lines[0];
    const own = places.filter((p) => p.line === line);
    const place = own[Math.max(0, Math.min(own.length - 1, (active ? active.at : -1) + move[0]))] ?? own[0];
    choose(place);
    showTipAt(place.node, read(place));
    $("live").textContent = read(place);
  });
}

/** Rows with a mean and an interval around a zero line. `rows`: [{name, style, value: [mean, low, high], text, note}]. */
function intervalChart(host, rows, label) {
  fitted(host, (width) => {
    const left = Math.min(230, width * 0.42), right = width - (width > 560 ? 150 : 16), step = 28, height = rows.length * step + 40;
    const [x0, x1] = padded(rows.flatMap((row) => row.value.slice(0, 3).filter((v) => v !== null)).concat(0));
    const X = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    for (const x of ticks(x0, x1, width < 500 ? 4 : 8))
      root.append(svg("line", { class: x === 0 ? "zero" : "axis", x1: X(x), x2: X(x), y1: 4, y2: height - 34 }), svg("text", { x: X(x), y: height - 18, "text-anchor": "middle" }, plain(x)));
    rows.forEach((row, i) => {
      const y = i * step + step / 2 + 4, [mean, low, high] = row.value;
      const text = `${row.name}: ${row.text}${row.note ? `\n${row.note}` : ""}`;
      const group = svg("g", { class: row.style.css, tabindex: "0", role: "img", "aria-label": text });
      group.append(svg("rect", { x: 0, y: y - step / 2, width, height: step, fill: "transparent" }),
        nameOf(row.name, left - 12, y + 4, left - 14));
      if (low !== null) group.append(svg("path", { class: "whisker", d: `M${X(low)},${y}H${X(high)}M${X(low)},${y - 4}v8M${X(high)},${y - 4}v8` }));
      group.append(mark(row.style, X(mean), y, 5));
      if (width > 560) group.append(svg("text", { x: width - 2, y: y + 4, "text-anchor": "end" }, row.text));
      describe(group, text);
      root.append(group);
    });
    return root;
  });
}

/** Heat map of shares: `rows` names, `values[r][c]` in [0, 1], the same scale for all; one hue, so it reads in grey, too. */
function heatMap(host, rows, values, describeCell, xlabel) {
  const depth = Math.max(...values.map((row) => row.length));
  fitted(host, (width) => {
    const above = width < 520; // no room for names beside the cells
    const left = above ? 0 : Math.min(Math.max(...rows.map(widthOf)) + 14, width * 0.38);
    const size = Math.max(10, Math.min(44, (width - left - 8) / depth)), head = above ? 18 : 0, step = 24 + head;
    const full = Math.max(width, left + size * depth), height = rows.length * step + 38;
    const root = svg("svg", { width: full, height, role: "img", "aria-label": `Heat map, ${rows.length} rows, ${depth} layers` });
    root.style.maxWidth = "none";
    rows.forEach((name, r) => {
      const top = r * step + head;
      root.append(above ? nameOf(name, 0, top - 4, width, "start") : nameOf(name, left - 8, top + 16, left - 10));
      values[r].forEach((value, c) => {
        const rect = svg("rect", { x: left + c * size, y: top, width: size - 1, height: 23, fill: "var(--accent)", "fill-opacity": (0.06 + 0.94 * value).toFixed(3) });
        rect.addEventListener("pointermove", (event) => showTip(describeCell(r, c), event.clientX, event.clientY));
        rect.addEventListener("pointerleave", releaseTip);
        root.append(rect);
        if (size >= 24) root.append(svg("text", { class: value > 0.5 ? "on" : "off", x: left + (c + 0.5) * size - 0.5, y: top + 16, "text-anchor": "middle" }, fixed(100 * value, 0)));
      });
    });
    for (let c = 0; c < depth; c += Math.ceil(26 / size)) root.append(svg("text", { x: left + (c + 0.5) * size, y: rows.length * step + 14, "text-anchor": "middle" }, String(c)));
    root.append(svg("text", { x: left + (size * depth) / 2, y: rows.length * step + 32, "text-anchor": "middle" }, xlabel));
    return root;
  });
}
