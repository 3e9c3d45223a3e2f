// Word-level differences by longest common subsequence.

/** Words, single CJK characters, punctuation and white space, so that joining the parts gives the text back. */
function words(text) {
  return text.match(/[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]|[\p{L}\p{N}_]+|\s+|./gsu) ?? [];
}

/**
 * Parts [kind, text] that turn `before` into `after`: "=" in both, "-" only before, "+" only after.
 * Quadratic in the part that differs; longer texts than `limit` words are compared as a whole there.
 */
function difference(before, after, limit = 3000) {
  const a = words(before), b = words(after);
  let start = 0, enda = a.length, endb = b.length;
  while (start < enda && start < endb && a[start] === b[start]) start++;
  while (enda > start && endb > start && a[enda - 1] === b[endb - 1]) { enda--; endb--; }
  const parts = [["=", a.slice(0, start).join("")]];
  const middle = [a.slice(start, enda), b.slice(start, endb)];
  if (Math.max(middle[0].length, middle[1].length) > limit) parts.push(["-", middle[0].join("")], ["+", middle[1].join("")]);
  else parts.push(...subsequence(...middle));
  parts.push(["=", a.slice(enda).join("")]);
  return join(parts);
}

function subsequence(a, b) {
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i * width + j] = a[i] === b[j]
        ? common[(i + 1) * width + j + 1] + 1
        : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const parts = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { parts.push(["=", a[i]]); i++; j++; }
    else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) parts.push(["-", a[i++]]);
    else parts.push(["+", b[j++]]);
  }
  return parts;
}

/** Neighbours of one kind become one part; a lone blank between two changes joins them. */
function join(parts) {
  const groups = [];
  let removed = "", added = "";
  const flush = () => {
    if (removed) groups.push(["-", removed]);
    if (added) groups.push(["+", added]);
    removed = added = "";
  };
  parts.forEach(([kind, text], index) => {
    const next = parts[index + 1];
    if (kind === "-") removed += text;
    else if (kind === "+") added += text;
    else if (text === " " && (removed || added) && next && next[0] !== "=") { removed += text; added += text; }
    else if (text) {
      flush();
      if (groups.length && groups[groups.length - 1][0] === "=") groups[groups.length - 1][1] += text;
      else groups.push(["=", text]);
    }
  });
  flush();
  return groups;
}

/** The differing text as nodes: ins and del around what changed. */
function marked(before, after) {
  return difference(before, after).map(([kind, text]) => (kind === "=" ? text : el(kind === "-" ? "del" : "ins", {}, text)));
}
