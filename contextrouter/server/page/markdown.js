// Markdown to elements: headings, paragraphs, lists, tables, quotes, code and links. Nothing is parsed as HTML, so that
// whatever a text contains stays text. Words of the question are marked.

import { h, link } from "/explorer/dom.js";

const STOP = new Set("a about an and are at be by can do does for from has have how in is it of on or that the this to was were what when where which who why will with".split(" "));
const WORD = /[\p{L}\p{N}]+/gu;

/** What a word is compared by: without its case, and without the ends of English words. */
const stem = (word) => word.toLowerCase().replace(/(?:ing|ers?|ies|es|s|ed|e|y)$/u, (end) => (word.length - end.length > 2 ? "" : end));

/** The words of questions that are looked for in texts. */
export function wordsOf(...questions) {
  const words = questions.flatMap((question) => question.match(WORD) ?? []);
  return new Set(words.filter((word) => word.length > 1 && !STOP.has(word.toLowerCase())).map(stem));
}

/** A text with the words of the question marked. */
export function marked(text, words) {
  if (!words?.size) return [text];
  const parts = [];
  let done = 0;
  for (const match of text.matchAll(WORD)) {
    if (!words.has(stem(match[0]))) continue;
    parts.push(text.slice(done, match.index), h("mark", {}, match[0]));
    done = match.index + match[0].length;
  }
  return [...parts, text.slice(done)];
}

const INLINE = /\\([\\`*_{}[\]()#+.!<>|~-])|&lt;|`([^`\n]+)`|\[(\d+)\]|!?\[([^\]\n]*)\]\(\s*<?([^\s)<>]*)>?[^)\n]*\)|<(https?:\/\/[^\s<>]+)>|\*\*(?=\S)([^*\n]+?)\*\*|(?<![\p{L}\p{N}*])\*(?=\S)([^*\n]+?)\*(?![\p{L}\p{N}])|(?<![\p{L}\p{N}_])_(?=\S)([^_\n]+?)_(?![\p{L}\p{N}])/gu;

/** The elements of a line. `cite(number, text)` makes those of a citation; without it, `[1]` is text. */
function inline(text, { words, cite }) {
  const parts = [];
  let done = 0;
  const more = (inner) => inline(inner, { words, cite });
  for (const match of text.matchAll(INLINE)) {
    const [all, escaped, code, number, title, target, address, strong, star, line] = match;
    parts.push(...marked(text.slice(done, match.index), words));
    if (escaped) parts.push(escaped);
    else if (all === "&lt;") parts.push("<");
    else if (code) parts.push(h("code", {}, code));
    else if (number) parts.push(cite ? cite(Number(number), all) : all);
    else if (target !== undefined && title !== undefined) parts.push(all.startsWith("!") ? title || all : link(target, title || target));
    else if (address) parts.push(link(address, address));
    else if (strong) parts.push(h("strong", {}, more(strong)));
    else if (star || line) parts.push(h("em", {}, more(star || line)));
    done = match.index + all.length;
  }
  return [...parts, ...marked(text.slice(done), words)];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const FENCE = /^ {0,3}(```+|~~~+)/;
const ITEM = /^\s{0,12}(?:[-*+]|\d{1,9}[.)])\s+/;
const RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** The elements of a Markdown text; headings are paragraphs that look like headings, as they belong to the text. */
export function markdown(text, options = {}) {
  const made = [];
  const lines = text.split("\n");
  let paragraph = [];
  const close = () => {
    if (paragraph.length) made.push(h("p", {}, inline(paragraph.join("\n"), options)));
    paragraph = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(/^ {0,3}#{1,6}\s+(.*?)#*\s*$/);
    if (fence) {
      close();
      const code = [];
      for (at += 1; at < lines.length && !lines[at].trim().startsWith(fence[1]); at += 1) code.push(lines[at]);
      made.push(h("pre", { class: "code", tabindex: "0" }, code.join("\n")));
    } else if (heading) {
      close();
      made.push(h("p", { class: "heading" }, inline(heading[1], options)));
    } else if (ITEM.test(line)) {
      close();
      const ordered = /^\s*\d/.test(line);
      const items = [];
      for (; at < lines.length && lines[at].trim() && (ITEM.test(lines[at]) || /^\s{2,}/.test(lines[at])); at += 1) {
        if (ITEM.test(lines[at])) items.push(lines[at].replace(ITEM, ""));
        else items[items.length - 1] += ` ${lines[at].trim()}`;
      }
      at -= 1;
      made.push(h(ordered ? "ol" : "ul", {}, items.map((item) => h("li", {}, inline(item, options)))));
    } else if (line.includes("|") && RULE.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
      close();
      const head = cells(line);
      const rows = [];
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(cells(lines[at]));
      at -= 1;
      made.push(h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell, options))))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell, options)))))))));
    } else if (/^ {0,3}>/.test(line)) {
      close();
      const quote = [];
      for (; at < lines.length && /^ {0,3}>/.test(lines[at]); at += 1) quote.push(lines[at].replace(/^ {0,3}> ?/, ""));
      at -= 1;
      made.push(h("blockquote", {}, markdown(quote.join("\n"), options)));
    } else if (line.trim()) paragraph.push(line);
    else close();
  }
  close();
  return made;
}
