// The documents as cards: where they come from, what they say, and why they stand where they stand.

import { fileOf, nameOf, opens, placeOf } from "/explorer/answer.js";
import { count, fill, foreign, folded, h, section } from "/explorer/dom.js";
import { markdown } from "/explorer/markdown.js";
import { bars, provenance, whyAbove } from "/explorer/scores.js";

const BEGINNING = 700; // characters of a document that its card shows at first

/** The beginning of a text that ends at a word. */
const beginning = (text) => (text.length <= BEGINNING ? text : `${text.slice(0, BEGINNING).replace(/\S*$/, "")}…`);

function card(envelope, at, { envelopes, citations, colours, words }) {
  const { document } = envelope;
  const citation = citations[at];
  const said = [document.title, ...document.path].map((part) => part.trim());
  const content = document.content.replace(/^\s*#{1,6}\s+(.*?)#*\s*\n/, (line, heading) => (said.includes(heading.trim()) ? "" : line)).trim();
  const text = h("div", { class: "text" }, markdown(beginning(content), { words }));
  const whole = content.length <= 300 && content.split("\n").length < 4 ? null : h("button", { type: "button", class: "more", "aria-expanded": "false", on: { click: (event) => {
    const open = text.classList.toggle("whole");
    event.target.textContent = open ? "Less" : "More";
    event.target.setAttribute("aria-expanded", String(open));
    text.replaceChildren(...markdown(open ? content : beginning(content), { words }));
  } } }, "More");
  const headings = citation.path.join(" › ");
  const file = fileOf(citation, document);
  const origin = [citation.job && citation.job !== citation.source ? `${citation.source} / ${citation.job}` : citation.source, document.kind, document.compartment, document.sensitivity, placeOf(citation)];
  const why = folded(null, "Why here?", () => [
    h("ul", {}, (at + 1 < envelopes.length ? whyAbove(envelope, envelopes[at + 1]) : ["It is the last."]).map((line) => h("li", {}, line))),
    ...provenance(envelope)]);
  return h("li", { id: `hit-${at + 1}`, class: "card", tabindex: "-1" },
    h("div", { class: "body" },
      h("h3", {}, h("span", { class: "number" }, `[${at + 1}] `), opens(citation, nameOf(document).slice(0, 300))),
      h("p", { class: "dim" }, headings ? h("span", { class: "path" }, foreign(headings.slice(0, 300)), " · ") : null,
        file && file !== citation.title ? [opens(citation, file.slice(0, 200)), " · "] : null, foreign(origin.filter(Boolean).join(" · "))),
      text, h("div", { class: "line" }, whole, why)),
    bars(envelope, colours));
}

/** The cards of all documents of a context. */
export function cards(context, words) {
  const list = h("ol", { class: "hits" });
  const all = { envelopes: context.envelopes, citations: context.citations, colours: new Map(), words };
  fill(list, context.envelopes, (envelope, at) => card(envelope, at, all));
  return section("hits", `Documents (${context.envelopes.length})`, context.clarification ? h("p", {}, h("strong", {}, foreign(context.clarification.question))) : null,
    context.envelopes.length ? list : h("p", { class: "dim" }, `${count(0, "document")} in the answer; below is what was asked, and what was lost.`));
}

/** Results of several legs side by side: [["vector", context], …]; a text in place of a context says why there is none. */
export function compared(results) {
  const whole = results.find(([, context]) => typeof context !== "string")?.[1];
  const key = (document) => document.id + document.url;
  const place = new Map((whole?.envelopes ?? []).map((envelope, at) => [key(envelope.document), at + 1]));
  const columns = results.map(([name, context]) => h("div", {}, h("h3", {}, name), typeof context === "string"
    ? h("p", { class: "dim" }, context)
    : [h("p", { class: "dim" }, `${count(context.envelopes.length, "document")} in ${Math.round(context.usage.seconds * 1000)} ms, ${context.answerability.level}`),
      h("ol", {}, context.envelopes.slice(0, 20).map((envelope, at) => {
        const there = place.get(key(envelope.document));
        const where = context === whole ? "" : there ? ` (#${there} in ${results[0][0]})` : ` (not in ${results[0][0]})`;
        return h("li", {}, opens(context.citations[at], [nameOf(envelope.document), context.citations[at].path.at(-1)].filter(Boolean).join(" › ").slice(0, 120)), h("span", { class: "dim" }, where));
      }))]));
  return section("comparison", "Legs side by side", h("div", { class: "columns" }, columns));
}
