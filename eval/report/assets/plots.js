// The plots of a block: differences to full, curves against the ratio, values by layer, budgets.

const hidden = new Set();

function setupPlots(block) {
  hidden.clear();
  const draw = () => [drawForest(block), drawSweep(block), drawLayers(block), drawBudget(block)];
  drawLegends(block, draw);
  document.querySelectorAll("[data-level]").forEach((node) => { node.textContent = percent(block.level, 0); });
  const ratios = ratioOptions(block, false);
  fill($("forest-ratio"), ratioOptions(block, true), ratios.length > 1 ? ratios[0][0] : "");
  fill($("measure"), block.measures.map((measure, m) => [m, measure.name]), 0);
  const quantities = Object.keys(block.layers);
  fill($("quantity"), quantities.map((name) => [name, block.layers[name].name]), quantities[0]);
  fill($("layers-ratio"), ratios);
  $("forest-ratio").onchange = () => drawForest(block);
  $("measure").onchange = () => drawSweep(block);
  $("quantity").onchange = () => drawLayers(block);
  $("layers-ratio").onchange = () => [drawLayers(block), drawBudget(block)];
  draw();
}

/** A button a series, above the plots and above the layers, where the full cache has no curve; both switch the same series. */
function drawLegends(block, draw) {
  const legends = [...document.querySelectorAll(".legend")];
  const toggle = (s) => {
    if (!hidden.delete(s)) hidden.add(s);
    for (const button of document.querySelectorAll(`.legend [data-series="${s}"]`)) button.setAttribute("aria-pressed", String(!hidden.has(s)));
    draw();
  };
  for (const legend of legends) {
    const buttons = block.series.map((style, s) => el("button", { type: "button", "data-series": s, "aria-pressed": "true", onclick: () => toggle(s) }, swatch(style), style.label));
    legend.replaceChildren(...buttons.filter((_, s) => s !== fullSeries(block) || !legend.closest("#layers")));
  }
}

function fullSeries(block) {
  return block.full === null ? null : block.arms[block.full].series;
}

function drawForest(block) {
  const rows = ofRatio(block, $("forest-ratio").value)
    .filter((i) => block.rows[i].delta && i !== block.full && !hidden.has(block.arms[i].series))
    .map((i) => ({ name: armName(block.arms[i]), style: block.series[block.arms[i].series], value: block.rows[i].delta,
      text: block.rows[i].identical ? "texts identical to full" : interval(block.rows[i].delta, 2, true),
      note: block.rows[i].p === null ? "" : `p = ${short(block.rows[i].p)} (Holm)` }));
  $("forest-figure").hidden = !block.rows.some((row, i) => row.delta && i !== block.full);
  if (rows.length) intervalChart($("forest"), rows, "Difference to the full cache in points");
  else $("forest").replaceChildren();
}

/** Lines of a measure: `pick(row)` gives [mean, low, high] of an arm. */
function linesOf(block, pick) {
  return block.series.map((style, s) => ({
    name: style.label, style,
    points: block.arms.map((arm, i) => ({ arm, value: pick(block.rows[i]) }))
      .filter(({ arm, value }) => arm.series === s && arm.value < 1 && value)
      .map(({ arm, value }) => [arm.value, value[0], value[1] ?? null, value[2] ?? null])
      .sort((a, b) => a[0] - b[0]),
  })).filter((line, s) => line.points.length && !hidden.has(s));
}

function drawSweep(block) {
  const measure = block.measures[Number($("measure").value)];
  const xs = [...new Set(block.arms.filter((arm) => arm.value < 1).map((arm) => arm.value))].sort((a, b) => a - b);
  $("sweep-figure").hidden = xs.length < 2 || !measure;
  const button = document.querySelector(`#plots .legend [data-series="${fullSeries(block)}"]`);
  if (button) button.hidden = $("sweep-figure").hidden || !measure.reference; // a button without a line
  if ($("sweep-figure").hidden) return;
  $("sweep-title").textContent = `${measure.name} against the share of the cache that is kept`;
  const draw = (host, pick, title, height, x) => {
    const lines = linesOf(block, pick);
    const full = block.full !== null && measure.reference && !hidden.has(fullSeries(block)) ? pick(block.rows[block.full]) : null;
    if (!lines.length) return host.replaceChildren(el("p", { class: "empty" }, "nothing to show"));
    const style = full && block.series[fullSeries(block)];
    lineChart(host, lines, { x, label: `${measure.name} ${title}`, xs, height, top: measure.top, format: (v) => interval(v, measure.digits) }, full && { name: style.label, style, value: full });
  };
  draw($("sweep"), (row) => measure.key === "score" ? row.average : row[measure.key][measure.index], "over all tasks", 340, "Ratio");
  $("multiples").replaceChildren();
  if (measure.key !== "score" || block.categories.length < 2) return;
  block.categories.forEach((name, c) => {
    const host = el("div");
    $("multiples").append(el("div", {}, el("h3", {}, name), host));
    draw(host, (row) => row.categories[c], name, 190, "");
  });
}

function drawLayers(block) {
  const name = $("quantity").value, quantity = block.layers[name];
  document.querySelector("#layers .card").hidden = !quantity;
  if (!quantity) return;
  const ratio = $("layers-ratio").value;
  $("layers-caption").textContent = `${quantity.name} by layer`;
  $("layers-what").textContent = quantity.what && `${quantity.name}: ${quantity.what}.`;
  const lines = Object.entries(quantity.values)
    .map(([i, values]) => ({ arm: block.arms[i], values }))
    .filter(({ arm }) => arm.ratio === ratio && !hidden.has(arm.series))
    .map(({ arm, values }) => ({ name: arm.label, style: block.series[arm.series], points: values.map((value, layer) => [layer, value, null, null]) }));
  if (!lines.length) return $("layers-chart").replaceChildren(el("p", { class: "empty" }, "no method of this ratio reports it"));
  const depth = Math.max(...lines.map((line) => line.points.length));
  lineChart($("layers-chart"), lines, { x: "Layer", label: `${quantity.name} by layer`, xs: [...Array(depth).keys()], height: 280, top: quantity.top, format: (v) => `${quantity.name}: ${short(v[0])}` });
}

function drawBudget(block) {
  const known = byRatio(block).filter((i) => block.budget[i] && block.arms[i].value < 1);
  $("budget-figure").hidden = !known.length;
  $("layers").hidden = !known.length && !Object.keys(block.layers).length;
  const arms = known.filter((i) => block.arms[i].ratio === $("layers-ratio").value && !hidden.has(block.arms[i].series));
  if (!arms.length) return $("budget").replaceChildren();
  heatMap($("budget"), arms.map((i) => armName(block.arms[i])), arms.map((i) => block.budget[i]),
    (r, c) => `${armName(block.arms[arms[r]])}\nlayer ${c}: ${percent(block.budget[arms[r]][c])} of the entries`, "Layer");
}
