// Owns markdown: from text to DOM nodes, never through an HTML string. Text that is still arriving
// is drawn again from its first changed block on, so finished blocks keep their selection and buttons.

import { copyOnClick, element, icon } from "./dom.js";
import { inlineNodes } from "./inline.js";

const DEEPEST = 8;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|[ \t]*)$/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

export function parseBlocks(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const start = at;
    const [block, next] = readBlock(lines, at, depth);
    at = next;
    block.source = lines.slice(start, at).join("\n");
    blocks.push(block);
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return readCode(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, text: heading[2] ?? "" }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (depth < DEEPEST) {
    if (QUOTE.test(line)) return readQuote(lines, at, depth);
    if (ITEM.test(line)) return readList(lines, at, depth);
  }
  if (startsTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at, depth);
}

function readCode(lines, at, [, indent, marks, language]) {
  const closes = new RegExp(`^ {0,3}\\${marks[0]}{${marks.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closes.test(lines[end])) end += 1;
  const body = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent.length, indentOf(line))));
  return [{ kind: "code", language, text: body.join("\n") }, Math.min(end + 1, lines.length)];
}

function readQuote(lines, at, depth) {
  const inner = [];
  while (at < lines.length && (QUOTE.test(lines[at]) || continuesParagraph(lines, at, inner))) {
    inner.push(lines[at].replace(QUOTE, ""));
    at += 1;
  }
  return [{ kind: "quote", blocks: parseBlocks(inner.join("\n"), depth + 1) }, at];
}

// A plain line right below quoted text still belongs to the quote.
function continuesParagraph(lines, at, inner) {
  return inner.length > 0 && !isBlank(inner.at(-1)) && !isBlank(lines[at]) && !startsBlock(lines, at);
}

function readList(lines, at, depth) {
  const ordered = /\d/.test(ITEM.exec(lines[at])[2]);
  const start = ordered ? Number.parseInt(ITEM.exec(lines[at])[2], 10) : 1;
  const items = [];
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || /\d/.test(match[2]) !== ordered || RULE.test(lines[at])) break;
    const padding = match[3] && match[3].length <= 4 ? match[3].length : 1;
    const width = match[1].length + match[2].length + padding;
    const inner = [match[4] ?? ""];
    at += 1;
    while (at < lines.length) {
      if (isBlank(lines[at])) {
        // A blank line ends the item unless what follows is indented under it.
        if (at + 1 >= lines.length || isBlank(lines[at + 1]) || indentOf(lines[at + 1]) < Math.min(width, 2)) break;
        inner.push("");
      } else if (indentOf(lines[at]) >= Math.min(width, 2)) {
        inner.push(lines[at].slice(Math.min(width, indentOf(lines[at]))));
      } else if (!startsBlock(lines, at) && !isBlank(inner.at(-1))) {
        inner.push(lines[at]);
      } else {
        break;
      }
      at += 1;
    }
    const task = /^\[([ xX])\] /.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(4);
    items.push({ task: task ? task[1] !== " " : undefined, blocks: parseBlocks(inner.join("\n"), depth + 1) });
    let next = at;
    while (next < lines.length && isBlank(lines[next])) next += 1;
    if (next < lines.length && ITEM.test(lines[next])) at = next;
  }
  return [{ kind: "list", ordered, start, items }, at];
}

function startsTable(lines, at) {
  const divider = lines[at + 1];
  if (divider === undefined || !lines[at].includes("|") || !divider.includes("-") || !DIVIDER.test(divider)) return false;
  return cells(lines[at]).length === cells(divider).length;
}

function readTable(lines, at) {
  const align = cells(lines[at + 1]).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return right ? (left ? "center" : "right") : "";
  });
  const head = cells(lines[at]);
  const rows = [];
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) {
    rows.push(cells(lines[end]));
    end += 1;
  }
  return [{ kind: "table", align, head, rows }, end];
}

function cells(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function startsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

function readParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end])) {
    // Below the deepest level quotes and lists are text, or this would never advance past them.
    if (depth < DEEPEST ? startsBlock(lines, end) : FENCE.test(lines[end])) break;
    if (startsTable(lines, end)) break;
    end += 1;
  }
  return [{ kind: "paragraph", text: lines.slice(at, end).map((line) => line.trim()).join("\n") }, end];
}

// Blocks to nodes.

function blockNode(block) {
  switch (block.kind) {
    case "heading":
      return element(`h${block.level}`, {}, ...inlineNodes(block.text));
    case "rule":
      return element("hr");
    case "code":
      return codeNode(block);
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(blockNode));
    case "list":
      return listNode(block);
    case "table":
      return tableNode(block);
    default:
      return element("p", {}, ...inlineNodes(block.text));
  }
}

function codeNode({ language, text }) {
  const body = element("code", {}, document.createTextNode(text));
  const button = element("button", { type: "button", aria: { label: "Copy code" } }, icon("copy"), "Copy");
  copyOnClick(button, () => body.textContent);
  return element("div", { className: "code" },
    element("div", { className: "code-head" }, element("span", {}, language || "text"), button),
    element("pre", { tabIndex: 0 }, body));
}

function listNode({ ordered, start, items }) {
  const list = element(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {});
  for (const { task, blocks } of items) {
    const item = element("li");
    if (task !== undefined) {
      item.className = "task";
      item.append(element("input", { type: "checkbox", checked: task, disabled: true }));
    }
    for (const block of blocks) {
      // The first line of an item needs no paragraph of its own.
      if (block === blocks[0] && block.kind === "paragraph") item.append(element("span", {}, ...inlineNodes(block.text)));
      else item.append(blockNode(block));
    }
    list.append(item);
  }
  return list;
}

function tableNode({ align, head, rows }) {
  const row = (tag, texts) => element("tr", {}, ...head.map((_, column) =>
    element(tag, { className: align[column] ?? "" }, ...inlineNodes(texts[column] ?? ""))));
  return element("div", { className: "table", tabIndex: 0 }, element("table", {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((texts) => row("td", texts)))));
}

const drawn = new WeakMap();

export function drawMarkdown(place, text) {
  const before = drawn.get(place) ?? [];
  const now = parseBlocks(text);
  let same = 0;
  while (same < now.length && same < before.length && before[same].source === now[same].source) same += 1;
  // Code grows in place: a long listing is the block that would cost most to make anew.
  const [old, fresh] = [before[same], now[same]];
  if (old?.kind === "code" && fresh?.kind === "code" && old.language === fresh.language) {
    place.children[same].querySelector("pre code").firstChild.data = fresh.text;
    same += 1;
  }
  while (place.children.length > same) place.lastChild.remove();
  place.append(...now.slice(same).map(blockNode));
  drawn.set(place, now);
}
