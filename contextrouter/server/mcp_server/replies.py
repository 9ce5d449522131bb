"""Replies of MCP tools: pages that never exceed a number of tokens, with a cursor to the next page.

A model reads the text of a reply. The structured part holds numbers, titles and addresses, and repeats no
text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from contextrouter.contracts import GATED
from contextrouter.model import Citation, Context, Document, Envelope, Fact
from contextrouter.model.plain_form import encode_json
from contextrouter.text import tokens
from contextrouter.text.answer_lines import fact_line
from contextrouter.text.prompt_injection import Fence, clean, clean_line, escape_marks

Detail = Literal["titles", "brief", "full"]
CUT = " […]"
_BRIEF = 600
_RESERVE = 160
"""Tokens of a reply that are reserved for its frame: the outcome, the cursor and how to go on."""


class Place(NamedTuple):
    """Where a reply begins: at a part, and at a character of it."""

    part: int = 0
    character: int = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one reply, and the cursor of the next one; None: this is the end."""

    parts: list[str]
    cursor: str | None

    def texts(self, fence: Fence | None) -> list[str]:
        """Return the parts, below the notice that explains their fence."""
        return [fence.notice, *self.parts] if fence is not None and self.parts else self.parts


class Pager:
    """Cuts an answer into replies of at most `budget` tokens.

    A cursor works only with the call that it came from: `call` is the tool's name with its arguments.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def start(self, cursor: str | None, call: Sequence[Any]) -> Place:
        """Return the place at which a reply begins.

        Raises ToolError for a cursor of another call.
        """
        if not cursor:
            return Place()
        try:
            digest, part, character = base64.urlsafe_b64decode(cursor.encode()).decode().split(":")
            if hmac.compare_digest(digest, _hash_call(call)):
                return Place(max(0, int(part)), max(0, int(character)))
        except ValueError:
            pass
        raise ToolError(
            "The cursor is not one of this question. Ask the same question with the same options, or leave it"
            " out."
        )

    def page(
        self,
        parts: Sequence[str],
        start: Place,
        call: Sequence[Any],
        *,
        entries: Sequence[Any] = (),
        fence: Fence | None = None,
    ) -> Page:
        """Return the parts from `start` on that fit the budget together with their entries.

        A page has at least one part. One that alone is too long is cut, and the next page goes on in it; each
        piece of it stands in its own fence.
        """
        page: list[str] = []
        budget = self.budget - _RESERVE - tokens.count(fence.notice if fence else "")
        for index, part in enumerate(parts[start.part :], start.part):
            fenced = fence if fence is not None and part.endswith(fence.end) else None
            body = part[len(fenced.begin) + 1 : -len(fenced.end) - 1] if fenced else part
            at = start.character if index == start.part else 0
            remainder = body[at:]
            overhead = 2 + (tokens.count(msgspec.json.encode(entries[index]).decode()) if entries else 0)
            overhead += tokens.count(f"{fenced.begin}{fenced.end}") + 2 if fenced else 0
            if tokens.count(remainder) + overhead <= budget:
                page.append(fenced.around(remainder) if fenced else remainder)
                budget -= tokens.count(remainder) + overhead
                continue
            if page:
                return Page(parts=page, cursor=_cursor(call, Place(index)))
            piece = tokens.truncate(remainder, max(1, budget - overhead - 4)) or remainder[:1]
            text = piece.rstrip() + CUT
            end = Place(index, at + len(piece))
            return Page(parts=[fenced.around(text) if fenced else text], cursor=_cursor(call, end))
        return Page(parts=page, cursor=None)


def _cursor(call: Sequence[Any], position: Place) -> str:
    text = f"{_hash_call(call)}:{position.part}:{position.character}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _hash_call(call: Sequence[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(call)).hexdigest()[:16]


def make_fence(items: Sequence[Envelope] | Sequence[Fact]) -> Fence | None:
    """Make a fence for what strangers wrote; None where nothing is theirs."""
    written = [item.document if isinstance(item, Envelope) else item for item in items]
    return Fence() if any(item.untrusted for item in written) else None


def format_document(context: Context, index: int, detail: Detail, fence: Fence | None) -> str:
    """Format a document as a heading with its number, and as much text as `detail` asks for."""
    document, citation = context.envelopes[index].document, context.citations[index]
    foreign = fence is not None and document.untrusted
    about = [citation.source, *_whereabouts(citation, foreign)]
    block = " — ".join([f"### [{citation.number}] {_short_title(citation, foreign)}", *about])
    if detail != "titles":
        block += f"\n{escape_marks(_text_of_document(document, detail))}"
    return fence.around(block) if fence is not None and foreign else block


def _whereabouts(citation: Citation, foreign: bool) -> list[str]:
    """Where to find a document: its heading path, its job, its page and the address that opens."""
    path = " > ".join(citation.path)
    parts = ["" if path == citation.title else path[:300], citation.place, citation.job, citation.url[:1000]]
    return [clean_line(part) if foreign else part for part in parts if part]


def beginning(document: Document, fence: Fence | None) -> str:
    """Return the beginning of a document's text, within the fence where a stranger wrote it."""
    text = escape_marks(_text_of_document(document, "brief"))
    return fence.around(text) if fence is not None and document.untrusted else text


def _text_of_document(document: Document, detail: Detail) -> str:
    content = (clean(document.content)[0] if document.untrusted else document.content).strip()
    if detail == "brief" and len(content) > _BRIEF:
        return content[:_BRIEF].rsplit(" ", 1)[0] + CUT
    return content


def _short_title(citation: Citation, foreign: bool) -> str:
    return (clean_line(citation.title) if foreign else citation.title)[:300]


def make_entry(context: Context, index: int, id: str) -> Mapping[str, Any]:
    """Make the structured entry of a document: number, the id by which `fetch` returns it, title, address,
    source and score.
    """
    envelope, citation = context.envelopes[index], context.citations[index]
    foreign = envelope.document.untrusted
    return {
        "number": citation.number,
        "id": id,
        "title": _short_title(citation, foreign),
        "url": (clean_line(citation.url) if foreign else citation.url)[:1000],
        "source": citation.source,
        **_locate(citation),
        "score": round(envelope.normalized, 4),
    }


def _locate(citation: Citation) -> Mapping[str, Any]:
    """The job and the place of a document, as far as they are known."""
    values = {name: getattr(citation, name) for name in ("job", "page", "line", "seconds")}
    return {name: value for name, value in values.items() if value not in ("", None)}


def format_fact(fact: Fact, fence: Fence | None) -> str:
    """Format a fact as one line of a list, within the fence where strangers wrote it."""
    line = fact_line(fact)
    return fence.around(line) if fence is not None and fact.untrusted else line


def make_result(
    context: Context, parts: Sequence[str], cursor: str | None, details: Mapping[str, Any]
) -> CallToolResult:
    """Make the result of a tool call: the parts as text, the outcome and `details` as structured content."""
    structured = {
        "outcome": context.outcome,
        "answerability": context.answerability.level,
        "degraded": context.degraded,
        "next_cursor": cursor,
        **details,
    }
    lines = list(parts) or [_say_nothing(context)]
    if cursor is not None:
        lines.append(f"There is more. Ask the same with cursor {cursor!r}.")
    text = "\n\n".join(lines).encode("utf-8", "replace").decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def _say_nothing(context: Context) -> str:
    """Return what an agent reads where its tool has nothing to show: the question to ask back, or why."""
    if context.clarification is not None:
        return context.clarification.question
    if context.outcome == GATED:
        return "What was found is not near enough to the question."
    if context.envelopes:
        return "No fact was found. The tool `route` finds documents."
    if context.facts:
        return "No document was found. The tool `facts` finds facts."
    return "Nothing was found."


def make_json_result(content: Mapping[str, Any]) -> CallToolResult:
    """Make the result of a tool of which programs expect JSON: in the text, and as structured content."""
    text = encode_json(content).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=json.loads(text))
