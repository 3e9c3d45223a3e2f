"use strict";
// Elements, numbers and the tooltip. Text of a model reaches the page as text nodes only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function $(id) {
  return document.getElementById(id);
}

/** Element with attributes (on*: listeners) and children; a string child is text. */
function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Number with `digits` decimals, a true minus sign, and an en dash where there is none. */
function fixed(value, digits = 2, signed = false) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "−" : signed ? "+" : "") + text;
}

/** Number in at most four significant digits. */
function short(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(Math.abs(value) >= 1000 ? 6 : 4))).replace("-", "−");
}

function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${fixed(100 * value, digits)} %`;
}

function interval(triple, digits = 2, signed = false) {
  if (!triple) return "–";
  const [mean, low, high] = triple;
  return fixed(mean, digits, signed) + (low === null ? "" : ` [${fixed(low, digits, signed)}, ${fixed(high, digits, signed)}]`);
}

function armName(arm) {
  return arm.value === 1 ? arm.label : `${arm.label} · ${arm.ratio}`;
}

function seriesClass(block, arm) {
  return block.series[arm.series].css;
}

/** Fill a select; `options` are [value, text]. Keeps the choice where it still exists. */
function fill(select, options, chosen = select.value) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  select.value = options.some(([value]) => String(value) === String(chosen)) ? chosen : options[0] ? options[0][0] : "";
  const field = select.closest(".field");
  if (field) field.hidden = options.length < 2;
}

const tip = { anchor: null, pointer: "" }; // anchor: the element whose focus holds the tip; null where the pointer does

function showTip(text, x, y, anchor = null) {
  tip.anchor = anchor;
  const node = $("tip");
  node.textContent = text;
  node.hidden = false;
  const { width, height } = node.getBoundingClientRect();
  node.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  node.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

function showTipAt(anchor, text) {
  const box = anchor.getBoundingClientRect();
  showTip(text, box.left + box.width / 2 - 14, box.bottom - 10, anchor);
}

function hideTip() {
  tip.anchor = null;
  $("tip").hidden = true;
}

/** The pointer left: a tip that focus holds stays. */
function releaseTip() {
  if (!tip.anchor) hideTip();
}

/** Tooltip of an element, for the pointer and for the keyboard's focus. */
function describe(node, text) {
  node.addEventListener("pointermove", (event) => showTip(text, event.clientX, event.clientY));
  node.addEventListener("pointerleave", releaseTip);
  node.addEventListener("focus", () => {
    if (node.matches(":focus-visible")) showTipAt(node, text);
  });
  node.addEventListener("blur", hideTip);
}

/** A focused element may be scrolled into view, an event that comes later: its tip moves along, the pointer's hides. */
function setupTip() {
  document.addEventListener("scroll", () => {
    if (tip.anchor?.isConnected) showTipAt(tip.anchor, $("tip").textContent);
    else hideTip();
  }, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  // Browsers also send a move where the page moves below a pointer that rests; it must not take the tip from the focus.
  document.addEventListener("pointermove", (event) => {
    const place = `${event.screenX},${event.screenY}`;
    if (tip.anchor && place === tip.pointer) event.stopPropagation();
    tip.pointer = place;
  }, { capture: true });
}

function debounce(action, wait) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  };
}

function setupTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    const theme = chosen ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = theme;
    root.style.colorScheme = theme;
    $("theme").textContent = theme === "dark" ? "☀" : "☾";
    $("theme").setAttribute("aria-pressed", String(theme === "dark"));
  };
  $("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}
