"""Results of Vertex AI Search as hits: a chunk, or a document with the part of it that fits the question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from contextrouter.builtin.providers.vertex_search.filter_expression import NONE
from contextrouter.model import Document, Hit

LABELS = ("tenant", "compartment", "sensitivity", "trust", "kind", "language")
_LISTS = ("labels", "keywords")
TEXTS = ("content", "title", "url", "kind", "language", "updated_at")


class ResultReader:
    """Reads results. `labels` and `fields` map names of ours to fields of the store."""

    def __init__(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self._labels, self._fields = labels, fields

    def read(self, result: Any) -> Hit | None:
        """Return the hit in a result; None: it has no text."""
        raw = type(result).pb(result)
        return self._chunk(raw) if raw.HasField("chunk") else self._document(raw)

    def _chunk(self, raw: Any) -> Hit | None:
        chunk, about = raw.chunk, raw.chunk.document_metadata
        if not chunk.content.strip():
            return None
        _, _, path = chunk.name.rpartition("/documents/")
        parent, _, part = path.partition("/chunks/")
        data = _to_mapping(about.struct_data)
        document = self._make(
            data,
            id=f"{parent}#{part}" if part else chunk.id or raw.id,
            parent=parent if part else None,
            content=chunk.content,
            title=about.title,
            url=about.uri,
            metadata={**data, **_pages(chunk.page_span)},
        )
        score = chunk.relevance_score if chunk.HasField("relevance_score") else None
        return Hit(document=document, score=score)

    def _document(self, raw: Any) -> Hit | None:
        data, derived = _to_mapping(raw.document.struct_data), _to_mapping(raw.document.derived_struct_data)
        content = data.get(self._fields.get("content", "content"))
        id, parent, page = raw.document.id or raw.id, None, None
        if not isinstance(content, str) or not content.strip():
            segments = [item for item in _maps(derived.get("extractive_segments")) if item.get("content")]
            if not segments:
                return None
            # Which part comes depends on the question, so a part is a document of its own.
            content, page = str(segments[0]["content"]), segments[0].get("pageNumber")
            id, parent = f"{id}#{sha256(content.encode()).hexdigest()[:8]}", id
        document = self._make(
            data,
            id=id,
            parent=parent,
            content=content,
            title=str(derived.get("title") or ""),
            url=str(derived.get("link") or ""),
            metadata={**data, **({} if page is None else {"page": page})},
        )
        signals = raw.rank_signals if raw.HasField("rank_signals") else None
        scored = signals is not None and signals.HasField("relevance_score")
        return Hit(
            document=document,
            score=signals.relevance_score if signals is not None and scored else None,
            highlights=_highlights(derived),
        )

    def _make(self, data: Mapping[str, Any], **values: Any) -> Document:
        """A document with what the store's own fields say of it."""
        for name in TEXTS:
            field = self._fields.get(name, name if name == "kind" else "")
            if name == "content" or not isinstance(value := data.get(field), str) or not value:
                continue
            values[name] = _moment(value) if name == "updated_at" else value
        for name, field in self._labels.items():
            value = data.get(field)
            if name in _LISTS:
                values[name] = tuple(_strings(value))
            elif value in (None, "", NONE):
                continue
            elif name in LABELS:
                values[name] = str(value)
            else:
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
    return tuple(dict.fromkeys(text for text in (*answers, *snippets) if isinstance(text, str) and text))


def _to_mapping(struct: Any) -> dict[str, Any]:
    from google.protobuf import json_format

    plain: dict[str, Any] = json_format.MessageToDict(struct)
    return plain


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str) and item]


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
