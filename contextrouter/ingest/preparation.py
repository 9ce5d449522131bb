"""Preparation of one document for a store: labels, fingerprint, chunks and facts. Only transforms do I/O."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from hashlib import sha256
from typing import Any

import msgspec

from contextrouter.contracts import Embedder, Entry, Plugin, Transform
from contextrouter.errors import IngestError
from contextrouter.model import TRUSTS, Document, Fact
from contextrouter.runtime.plugin_calls import as_plain
from contextrouter.scope import SENSITIVITIES, SHARED
from contextrouter.text.characters import is_blank
from contextrouter.text.fields import body

LABELS = ("kind", "trust", "tenant", "compartment", "sensitivity")
TRY_AGAIN = "try_again"
"""Key of the metadata by which a transform says that it could not do its work: the next run tries again."""
AT_ONCE = 4
"""How many chunks of a document one transform processes at the same time."""
_YIELD_EVERY = 64  # chunks
_INTERNAL = ("facts", "problems", TRY_AGAIN)  # transforms hand these to ingestion in the metadata
# Times are left out: a file that was only touched or copied has the same content.
_HASHED = (
    "id",
    "content",
    "url",
    "title",
    "snippet",
    "kind",
    "path",
    "media_type",
    "language",
    "tenant",
    "compartment",
    "sensitivity",
    "trust",
    "keywords",
    "labels",
    "job",
    "links",
    "metadata",
)


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise ValueError for a label that documents do not have, or an unknown level."""
    for name, value in labels.items():
        if name not in LABELS:
            raise ValueError(f"Label {name!r} is not known; give one of {', '.join(LABELS)}.")
        levels = {"sensitivity": SENSITIVITIES, "trust": TRUSTS}.get(name)
        if not isinstance(value, str) or not value or (levels and value not in levels):
            raise ValueError(
                f"Label {name} = {value!r} is not allowed; give"
                f" {' or '.join(levels) if levels else 'a text'}."
            )


def apply_labels(document: Document, labels: Mapping[str, str]) -> Document:
    """Fill the labels that a document lacks. Its own sensitivity and trust count only if they are stricter.

    Only a job can put a document into the shared tenant, the document itself cannot. Raises IngestError if
    document and job name different tenants or compartments: each would open the document to readers whom the
    other keeps out.
    """
    changes: dict[str, Any] = {}
    for name in ("tenant", "compartment"):
        value, label = getattr(document, name), labels.get(name)
        if value == SHARED and name == "tenant":
            value = None
        if value and label and value != label:
            raise IngestError(
                f"names the {name} {value!r}, the job {label!r}; take it out of one of them",
                document=document.id,
            )
        if (value or label) != getattr(document, name):
            changes[name] = value or label
    if "kind" in labels and document.kind == "document":
        changes["kind"] = labels["kind"]
    if "sensitivity" in labels:
        changes["sensitivity"] = _stricter(SENSITIVITIES, document.sensitivity, labels["sensitivity"])
    if "trust" in labels:
        changes["trust"] = _stricter(TRUSTS, document.trust, labels["trust"])
    return document.replace(**changes) if changes else document


def hold_to_labels(fact: Fact, document: Document) -> Fact:
    """Return a fact with the labels of the document or chunk that it was read in, or with its own where they
    are stricter: the rule of `apply_labels`.

    Raises IngestError, which names the fact, if fact and document name different tenants or compartments.
    """
    changes: dict[str, Any] = {"untrusted": fact.untrusted or document.untrusted}
    for name in ("tenant", "compartment"):
        value, label = getattr(fact, name), getattr(document, name)
        if value == SHARED and name == "tenant":
            value = None
        if value and label and value != label:
            raise IngestError(
                f"fact {' — '.join((fact.subject, fact.predicate, fact.object))!r:.300} names the {name}"
                f" {value!r}, its document {label!r}; take it out of one of them",
                document=document.id,
            )
        changes[name] = value or label
    level, limit = fact.sensitivity, document.sensitivity
    changes["sensitivity"] = _stricter(SENSITIVITIES, level, limit) if limit else level
    return fact.replace(**changes)


def _stricter(levels: Sequence[str], level: str | None, limit: str) -> str:
    """Return the later one in `levels`. A level that is not listed is stricter than all of them."""
    if not level:
        return limit
    if level not in levels or limit not in levels:
        return level if level not in levels else limit
    return max(level, limit, key=levels.index)


def configuration(
    transforms: Sequence[Transform],
    embedder: Embedder | None,
    legs: Sequence[str],
    counted: tuple[str, int] | None = None,
) -> str:
    """Return a digest of how documents are chunked and embedded: classes, constructor keywords, model, vector
    legs. `counted` are the model and dimensions that count in the place of the embedder's: after a change of
    model, the store has its vectors, and no document has to be read again.

    A keyword is read from the attribute of its name, with or without an underscore before it. A plugin counts
    by its class and model. Other values count if a settings file can hold them.
    """
    steps = [
        [type(transform).__module__, type(transform).__qualname__, _keywords(transform)]
        for transform in transforms
    ]
    model: list[Any] | None = None
    if embedder and legs:
        model = list(counted or (embedder.model or type(embedder).__qualname__, embedder.dimensions))
    return _hash([steps, model, list(legs)])


def _keywords(transform: Transform) -> dict[str, Any]:
    names = inspect.signature(type(transform)).parameters
    values = {name: getattr(transform, name, getattr(transform, f"_{name}", None)) for name in names}
    arguments = {
        name: [type(value).__qualname__, getattr(value, "model", "")] if isinstance(value, Plugin) else value
        for name, value in values.items()
    }
    return {name: value for name, value in arguments.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)


def fingerprint(document: Document, made_by: str) -> str:
    """Return SHA-256 (hex) of a document's content and labels, and of how it is chunked and embedded."""
    return _hash([made_by, {name: getattr(document, name) for name in _HASHED}])


def _hash(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=_encode).encode()).hexdigest()


def _encode(value: Any) -> Any:
    """Return JSON for types that JSON lacks. Raises TypeError for a value whose text differs by process."""
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, date | bytes):  # datetime is a date
        return repr(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"metadata holds a {type(value).__name__}, which cannot be stored")


async def build_entry(
    document: Document, transforms: Sequence[Transform], mark: str
) -> tuple[Entry, list[str]]:
    """Run the transforms over a document. Return the entry for the store, and the problems they reported.

    `mark` is the fingerprint that the document is stored with.
    """
    chunks: Sequence[Document] = [document]
    for transform in transforms:
        chunks = await _run_transform(transform, chunks)
    facts, problems = _read_facts(document, chunks)
    if TRY_AGAIN not in document.metadata and any(chunk.metadata.get(TRY_AGAIN) for chunk in chunks):
        mark = f"{TRY_AGAIN}.{mark}"  # no content has this fingerprint, so the document counts as changed
    parent = _merge_findings(document, chunks)
    parent = parent.replace(metadata=_drop_internal(document.metadata))
    entry = Entry(document=parent, chunks=_finish_chunks(parent, chunks), facts=facts, fingerprint=mark)
    return entry, problems


def _read_facts(document: Document, chunks: Sequence[Document]) -> tuple[tuple[Fact, ...], list[str]]:
    """Return the facts in the metadata of the chunks, held to the labels of each, and the problems there."""
    facts: dict[tuple[Any, ...], Fact] = {}
    problems: list[str] = []
    for chunk in chunks:
        problems += map(str, _metadata_list(chunk, "problems"))
        labelled = chunk.replace(**_strictest_labels(chunk, document))
        for fact in _metadata_list(chunk, "facts"):
            if not isinstance(fact, Fact):
                problems.append(
                    f"fact {fact!r} is no Fact; the transform that made it has to return Fact objects."
                )
                continue
            try:
                fact = hold_to_labels(fact, labelled)
            except IngestError as error:  # one fact is left out, the others and the document are stored
                problems.append(str(error))
                continue
            key = (fact.subject, fact.predicate, fact.object, fact.valid_from, fact.valid_to)
            facts.setdefault((*key, fact.tenant, fact.compartment, fact.sensitivity), fact)
    return tuple(facts.values()), problems


async def _run_transform(transform: Transform, chunks: Sequence[Document]) -> list[Document]:
    """Return the results of a transform for all chunks, in their order.

    Several chunks are processed at once, because a transform may wait for a remote model.
    """
    if len(chunks) == 1:
        return list(as_plain(await transform.transform(chunks[0])))
    results: list[Sequence[Document]] = [()] * len(chunks)
    positions = iter(range(len(chunks)))

    async def work() -> None:
        for index in positions:
            results[index] = as_plain(await transform.transform(chunks[index]))
            if index % _YIELD_EVERY == 0:
                await asyncio.sleep(0)  # most transforms never wait: let other tasks run

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(chunks))):
                group.create_task(work())
    except* Exception as failures:  # nothing is kept: the caller reports the document as failed
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    return [document for documents in results for document in documents]


def _merge_findings(document: Document, chunks: Sequence[Document]) -> Document:
    """Return the document with the links and labels of all its chunks, and the language of most of them."""
    links = tuple(dict.fromkeys((*document.links, *(link for chunk in chunks for link in chunk.links))))
    labels = tuple(dict.fromkeys((*document.labels, *(label for chunk in chunks for label in chunk.labels))))
    # The document keeps its content, so the language of what was translated is the original one.
    spoken = (chunk.metadata.get("original_language") or chunk.language for chunk in chunks)
    languages = Counter(language for language in spoken if isinstance(language, str))
    language = document.language or next((code for code, _ in languages.most_common(1)), None)
    if (links, labels, language) == (document.links, document.labels, document.language):
        return document
    return document.replace(links=links, labels=labels, language=language)


def _metadata_list(chunk: Document, key: str) -> Sequence[Any]:
    """Return the metadata value as a list, because a source may have put anything there."""
    value = chunk.metadata.get(key)
    return value if isinstance(value, list | tuple) else () if value is None else (value,)


def _drop_internal(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(key in metadata for key in _INTERNAL):
        return metadata
    return {key: value for key, value in metadata.items() if key not in _INTERNAL}


def _finish_chunks(document: Document, chunks: Iterable[Document]) -> tuple[Document, ...]:
    """Give every chunk its parent, a unique id, and labels as strict as its document's. Drop blank chunks."""
    result: list[Document] = []
    ids = {document.id, ""}
    for number, chunk in enumerate(chunk for chunk in chunks if not is_blank(chunk.content)):
        id = chunk.id if chunk.id not in ids else f"{document.id}#{number}"
        while id in ids:
            id += "'"
        ids.add(id)
        labels, metadata = _strictest_labels(chunk, document), _drop_internal(chunk.metadata)
        result.append(chunk.replace(id=id, parent=document.id, metadata=metadata, **labels))
    return tuple(result)


def _strictest_labels(chunk: Document, document: Document) -> dict[str, Any]:
    """Return the labels of a chunk: those of its document, or its own where they are stricter."""
    labels: dict[str, Any] = {
        name: getattr(document, name) or getattr(chunk, name) for name in ("tenant", "compartment")
    }
    for name, levels in (("sensitivity", SENSITIVITIES), ("trust", TRUSTS)):
        level, limit = getattr(chunk, name), getattr(document, name)
        labels[name] = _stricter(levels, level, limit) if limit else level
    labels["untrusted"] = chunk.untrusted or document.untrusted
    return labels


def leg_text(leg: str, chunk: Document) -> str | None:
    """Return the text of a chunk that a vector leg embeds.

    For "keywords" these are the key phrases (None without any), else titles and search text.
    """
    if leg == "keywords":
        return ", ".join(chunk.keywords) or None
    return "\n".join(part for part in (chunk.title, " > ".join(chunk.path), body(chunk)) if part)
