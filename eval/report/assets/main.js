// Start: read the data, draw the summary, hand the chosen block to each section.

function drawSummary(block) {
  $("findings").replaceChildren(...block.findings.map((text) => el("li", {}, text)));
  $("findings").hidden = !block.findings.length;
  $("facts").replaceChildren(...pairs(block.facts));
  $("versions").replaceChildren(...pairs(block.versions));
  $("notes").hidden = !block.notes.length;
  $("notes").replaceChildren(el("ul", {}, ...block.notes.map((text) => el("li", { class: text.startsWith("Warning") ? "warning" : "" }, text))));
}

function pairs(facts) {
  return facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)));
}

function open(block) {
  drawSummary(block);
  setupTable(block);
  setupPlots(block);
  setupSamples(block);
}

function main() {
  const { blocks } = JSON.parse($("data").textContent);
  setupTheme();
  fill($("block"), blocks.map((block, b) => [b, block.name]), 0);
  $("block").onchange = () => open(blocks[Number($("block").value)]);
  if (matchMedia("(max-width: 760px)").matches) $("notes").parentElement.open = false;
  setupTip();
  open(blocks[0]);
  document.documentElement.dataset.ready = "true";
}

main();
