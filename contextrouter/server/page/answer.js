// The answer: its text, with citations that lead to their cards, and what they cite, with links that open.

import { openFile } from "/explorer/api.js";
import { foreign, h, link, section } from "/explorer/dom.js";
import { markdown } from "/explorer/markdown.js";

export const nameOf = (document) => document.title || document.url || document.id || document.content.slice(0, 60) || "untitled";

/** Where a document opens: a link, or the path of its file. */
export function opens(citation, text) {
  const shown = text || citation.title || citation.url || citation.source;
  if (/^https?:\/\//i.test(citation.url)) {
    const made = link(citation.url, shown);
    made.addEventListener("click", (event) => openFile(citation.url, event));
    return made;
  }
  return foreign(shown);
}

/** The page, the moment or the line at which a citation begins. */
export function placeOf(citation) {
  if (citation.page) return `page ${citation.page}`;
  if (citation.seconds !== null && citation.seconds !== undefined) {
    const parts = [Math.floor(citation.seconds / 3600), Math.floor(citation.seconds / 60) % 60, Math.floor(citation.seconds) % 60];
    return parts.map((part, at) => (at ? String(part).padStart(2, "0") : part)).join(":");
  }
  return citation.line ? `line ${citation.line}` : "";
}

/** The name of the file of a document; "" where it is none. An id in a store begins with the name of its job. */
export function fileOf(citation, document) {
  const id = document.parent || document.id;
  const path = citation.file || (citation.job ? id.slice(id.indexOf(":") + 1) : /^https?:/i.test(document.url) ? "" : document.url);
  const name = path.split("/").at(-1);
  return /\.\w{1,8}$/.test(name) && !/^[a-z]+:\/\//i.test(path) ? name : "";
}

const WHY = {
  clarify: "The question has to be clearer, so it is asked back.",
  gated: "What was found is not near enough to the question.",
  empty: "Nothing that was found answers this.",
  declined: "The model declined to answer.",
};

/** Go to the card of a citation, and put the focus there. */
function show(number, event) {
  event.preventDefault();  // the address holds the question
  const card = document.getElementById(`hit-${number}`);
  card?.scrollIntoView({ block: "center" });
  card?.focus({ preventScroll: true });
}

/** An answer as it is written: the section, and what adds a piece to it. */
export function writing() {
  const text = h("p", { class: "answer" });
  return { shown: section("answer", "Answer", text), add: (piece) => text.append(foreign(piece)) };
}

/** An answer that is complete: its text, the documents it cites, and what is to be known of it. */
export function answered(answer, copies) {
  const numbers = new Set(answer.citations.map((citation) => citation.number));
  const cite = (number, text) => (numbers.has(number) ? h("a", { href: `#hit-${number}`, class: "number", "aria-label": `Citation ${number}`, on: { click: (event) => show(number, event) } }, text) : text);
  const list = [...answer.citations].sort((a, b) => a.number - b.number).map((citation) => h("li", {},
    h("span", { class: "number" }, `[${citation.number}] `), opens(citation, (citation.title || "").slice(0, 300)),
    h("span", { class: "dim" }, foreign([citation.path.at(-1), placeOf(citation), citation.job || citation.source].filter(Boolean).map((part) => ` · ${part.slice(0, 200)}`).join("")))));
  const failed = Object.entries(answer.checks).filter(([, passed]) => !passed).map(([name]) => ({ cited: "It cites no document.", language: "It seems to be in another language than the question." })[name]);
  const tokens = answer.usage.models.map((model) => `${model.generator}: ${model.calls} call${model.calls === 1 ? "" : "s"}, ${model.tokens_in} tokens in, ${model.tokens_out} out`);
  const about = [WHY[answer.outcome], answer.finish === "length" ? "It is cut." : "", answer.note, ...failed, ...tokens].filter(Boolean);
  return section("answer", "Answer", h("div", { class: "answer" }, markdown(answer.text, { cite })),
    list.length ? h("ul", { class: "cited", "aria-label": "Cited documents" }, list) : null,
    answer.thinking ? h("details", {}, h("summary", {}, "What the model thought"), h("pre", { tabindex: "0" }, foreign(answer.thinking))) : null,
    about.length ? h("p", { class: "dim" }, foreign(about.join(" · "))) : null, copies);
}
