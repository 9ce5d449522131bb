"""Results of Vertex AI Search as hits: a chunk, or a document with the part of it that fits the question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from contextrouter.builtin.providers.vertex_search.filter_expression import NONE
from contextrouter.model import Document, Hit

LABELS = ("tenant", "compartment", "sensitivity", "trust", "kind", "language")
_OF_SCOPE = LABELS[:3]
_LISTS = ("labels", "keywords")
TEXTS = ("content", "title", "url", "kind", "language", "updated_at")


class Unusable(Exception):
    """A result that is no hit. Its message says what it has not."""


class ResultReader:
    """Reads results. `labels` and `fields` map names of ours to fields of the store."""

    def __init__(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self._labels, self._fields = labels, fields

    def read(self, result: Any) -> Hit:
        """Return the hit in a result. Raises Unusable."""
        raw = type(result).pb(result)
        return self._chunk(raw) if raw.HasField("chunk") else self._document(raw)

    def _chunk(self, raw: Any) -> Hit:
        chunk, about = raw.chunk, raw.chunk.document_metadata
        if not chunk.content.strip():
            raise Unusable("no text")
        _, _, path = chunk.name.rpartition("/documents/")
        parent, _, part = path.partition("/chunks/")
        if not (parent and part):  # the id of a chunk alone is that of other documents' chunks, too
            raise Unusable("no name with the ids of document and chunk")
        data = _to_mapping(about.struct_data)
        document = self._make(
            data,
            id=f"{parent}#{part}",
            parent=parent,
            content=chunk.content,
            title=about.title,
            url=about.uri,
            metadata={**data, **_pages(chunk.page_span)},
        )
        score = chunk.relevance_score if chunk.HasField("relevance_score") else math.nan
        return Hit(document=document, score=score if -1.0 <= score <= 1.0 else None)

    def _document(self, raw: Any) -> Hit:
        data, derived = _to_mapping(raw.document.struct_data), _to_mapping(raw.document.derived_struct_data)
        id = raw.document.id or raw.document.name.rpartition("/documents/")[2] or raw.id
        content, parent, page = _string(data.get(self._fields.get("content", "content"))), None, None
        if not content.strip():
            segments = [
                item for item in _maps(derived.get("extractive_segments")) if _string(item.get("content"))
            ]
            if not segments:
                raise Unusable("no text")
            # Which part comes depends on the question, so a part is a document of its own.
            content, page, parent = segments[0]["content"], _number(segments[0].get("pageNumber")), id
        if not id:
            raise Unusable("no id")
        document = self._make(
            data,
            id=id if parent is None else f"{id}#{sha256(content.encode()).hexdigest()[:8]}",
            parent=parent,
            content=content,
            title=_string(derived.get("title")),
            url=_string(derived.get("link")),
            metadata={**data, **({} if page is None else {"page": page})},
        )
        signals = raw.rank_signals
        scored = raw.HasField("rank_signals") and signals.HasField("relevance_score")
        score = signals.relevance_score if scored and math.isfinite(signals.relevance_score) else None
        return Hit(document=document, score=score, highlights=_highlights(derived))

    def _make(self, data: Mapping[str, Any], **values: Any) -> Document:
        """A document with what the store's own fields say of it. Raises Unusable where one is missing that
        says who may see it: it must not be taken for a document that all may see.
        """
        for name in TEXTS:
            field = self._fields.get(name, name if name == "kind" else "")
            if name != "content" and (text := _string(data.get(field))):
                values[name] = _moment(text) if name == "updated_at" else text
        for name, field in self._labels.items():
            value = data.get(field)
            if name in _LISTS:
                values[name] = tuple(_strings(value))
            elif name in LABELS:
                label = _string(value[0] if isinstance(value, list) and len(value) == 1 else value)
                if not label and name in _OF_SCOPE:
                    raise Unusable(f"no text in the field {field!r} of labels.{name} ('-' is for none)")
                if label not in ("", NONE):
                    values[name] = label
            elif value not in (None, "", NONE):
                values["metadata"] = {**values["metadata"], name: value}  # for filters by our name
        return Document(**values)


def _pages(span: Any) -> dict[str, int]:
    return {"page": span.page_start, "last_page": span.page_end} if span.page_start else {}


def _highlights(derived: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a document depends on the question: answers, and snippets that were found."""
    answers = [item.get("content") for item in _maps(derived.get("extractive_answers"))]
    snippets = [
        item.get("snippet")
        for item in _maps(derived.get("snippets"))
        if item.get("snippet_status", "SUCCESS") == "SUCCESS"
    ]
    return tuple(dict.fromkeys(text for text in map(_string, (*answers, *snippets)) if text))


def _to_mapping(struct: Any) -> dict[str, Any]:
    return {key: _plain_value(value) for key, value in struct.fields.items()}


def _plain_value(value: Any) -> Any:
    """A value of structured data. Numbers that JSON has not become None."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _to_mapping(value.struct_value)
    if kind == "list_value":
        return [_plain_value(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        if not math.isfinite(number):
            return None
        return int(number) if number.is_integer() else number
    return None if kind in (None, "null_value") else getattr(value, kind)


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str) and item]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    """A page number, which comes as a number or as a text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
