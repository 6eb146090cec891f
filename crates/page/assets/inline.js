// Owns markdown inside a line: emphasis, code, links. `hopeless` remembers marks without a closing
// partner, so that a text of nothing but marks is still read in one go.

import { element } from "./dom.js";

const DEEPEST = 8;
const LONGEST_ADDRESS = 2048;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_LINK = /https?:\/\/[^\s<>"'`]+/y;

export function inlineNodes(text, depth = 0, inLink = false) {
  const nodes = [];
  const hopeless = new Set();
  let plain = "";
  let at = 0;
  const flush = () => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
  };
  while (at < text.length) {
    const found = depth < DEEPEST ? readInline(text, at, depth, inLink, hopeless) : undefined;
    if (found) {
      flush();
      nodes.push(...found.nodes);
      at = found.end;
    } else if (text[at] === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (text[at] === "`") {
      // An opening run without a partner is text as a whole.
      const run = /`+/y;
      run.lastIndex = at;
      plain += run.exec(text)[0];
      at = run.lastIndex;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return nodes;
}

function readInline(text, at, depth, inLink, hopeless) {
  switch (text[at]) {
    case "\n":
      return { nodes: [element("br")], end: at + 1 };
    case "`":
      return readCodeSpan(text, at, hopeless);
    case "*":
    case "_":
    case "~":
      return readEmphasis(text, at, depth, inLink, hopeless);
    case "!":
      // Pictures would need the network: the link stands for them.
      return text[at + 1] === "[" && !inLink ? readLink(text, at + 1, depth, hopeless) : undefined;
    case "[":
      return inLink ? undefined : readLink(text, at, depth, hopeless);
    case "<":
      return inLink ? undefined : readAngleLink(text, at);
    case "h":
      return inLink || /\w/.test(text[at - 1] ?? "") ? undefined : readBareLink(text, at);
    default:
      return undefined;
  }
}

function readCodeSpan(text, at, hopeless) {
  let width = 1;
  while (text[at + width] === "`") width += 1;
  const marks = "`".repeat(width);
  if (hopeless.has(marks)) return undefined;
  let close = at + width;
  while ((close = text.indexOf(marks, close)) >= 0) {
    let end = close + width;
    while (text[end] === "`") end += 1;
    if (end - close === width) {
      let body = text.slice(at + width, close).replaceAll("\n", " ");
      if (body.startsWith(" ") && body.endsWith(" ") && body.trim() !== "") body = body.slice(1, -1);
      return { nodes: [element("code", {}, body)], end };
    }
    close = end;
  }
  hopeless.add(marks);
  return undefined;
}

function readEmphasis(text, at, depth, inLink, hopeless) {
  const mark = text[at];
  const width = text[at + 1] === mark ? 2 : 1;
  if (mark === "~" && width === 1) return undefined;
  const marks = mark.repeat(width);
  const after = text[at + width];
  if (after === undefined || /\s/.test(after) || hopeless.has(marks)) return undefined;
  if (mark === "_" && /\w/.test(text[at - 1] ?? "")) return undefined;
  let close = at + width;
  while ((close = text.indexOf(marks, close)) >= 0) {
    const before = text[close - 1];
    const beyond = text[close + width];
    const fits = !/\s/.test(before) && before !== "\\" && close > at + width && !(mark === "_" && /\w/.test(beyond ?? ""));
    // A single mark is not half of a double one.
    const alone = width === 2 || (beyond !== mark && before !== mark);
    if (fits && alone) {
      // `**bold *both***`: the outer pair closes last.
      if (width === 2 && beyond === mark) close += 1;
      const tag = mark === "~" ? "del" : width === 2 ? "strong" : "em";
      const inner = inlineNodes(text.slice(at + width, close), depth + 1, inLink);
      return { nodes: [element(tag, {}, ...inner)], end: close + width };
    }
    close += alone ? width : 2;
  }
  hopeless.add(marks);
  return undefined;
}

function readLink(text, at, depth, hopeless) {
  if (hopeless.has("](")) return undefined;
  const middle = text.indexOf("](", at);
  if (middle < 0) {
    hopeless.add("](");
    return undefined;
  }
  // The innermost bracket opens the link.
  if (text.lastIndexOf("[", middle) !== at) return undefined;
  const label = text.slice(at + 1, middle);
  if (label.includes("\n")) return undefined;
  const furthest = Math.min(text.length, middle + LONGEST_ADDRESS);
  let open = 1;
  let end = middle + 2;
  for (; end < furthest && open > 0; end += 1) {
    if (text[end] === "(") open += 1;
    else if (text[end] === ")") open -= 1;
    else if (text[end] === "\n") return undefined;
  }
  if (open > 0) return undefined;
  const target = text.slice(middle + 2, end - 1).trim().replace(/\s+["'(].*$/, "").replace(/^<(.*)>$/, "$1");
  const inner = inlineNodes(label || target, depth + 1, true);
  const link = safeLink(target, inner);
  return { nodes: link ? [link] : inner, end };
}

function readAngleLink(text, at) {
  const match = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(text.slice(at, at + LONGEST_ADDRESS));
  const link = match && safeLink(match[1], [document.createTextNode(match[1])]);
  return link ? { nodes: [link], end: at + match[0].length } : undefined;
}

function readBareLink(text, at) {
  BARE_LINK.lastIndex = at;
  const match = BARE_LINK.exec(text);
  if (!match) return undefined;
  let target = match[0].replace(/[.,;:!?*_~]+$/, "");
  if (target.endsWith(")") && !target.includes("(")) target = target.slice(0, -1);
  const link = safeLink(target, [document.createTextNode(target)]);
  return link ? { nodes: [link], end: at + target.length } : undefined;
}

// Only addresses that open a page or a mail; a relative one would point into this server.
function safeLink(target, children) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return undefined;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return undefined;
  return element("a", { href: url.href, rel: "noopener noreferrer", target: "_blank", title: url.href }, ...children);
}
