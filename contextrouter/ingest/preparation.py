"""What becomes of one document before it is embedded: labels, fingerprint, chunks, facts. No I/O but the
transforms' own.
"""

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
from contextrouter.model import Document, Fact
from contextrouter.scope import SENSITIVITIES, SHARED
from contextrouter.text.fields import body

LABELS = ("kind", "trust", "tenant", "compartment", "sensitivity")
TRUSTS = ("authoritative", "reference", "volatile")
"""Levels of trust, highest first."""
AT_ONCE = 4
"""Chunks of a document that are with one transform at the same time."""
_BREATH = 64
_OWN = ("facts", "problems")  # what transforms leave in the metadata for ingestion
# Times are left out: a file that was only touched, or copied, says what it said before.
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
    "links",
    "metadata",
)


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise ValueError for a label that documents do not have, or a level that is not known."""
    for name, value in labels.items():
        if name not in LABELS:
            raise ValueError(f"Label {name!r} is not known; give one of {', '.join(LABELS)}.")
        levels = {"sensitivity": SENSITIVITIES, "trust": TRUSTS}.get(name)
        if not isinstance(value, str) or not value or (levels and value not in levels):
            raise ValueError(
                f"Label {name} = {value!r} is not allowed; give"
                f" {' or '.join(levels) if levels else 'a text'}."
            )


def labelled(document: Document, labels: Mapping[str, str]) -> Document:
    """Fill the labels a document lacks; what it says itself may only be stricter.

    No document makes itself everybody's: the shared tenant comes from the job alone. Raises IngestError where
    document and job name different tenants or compartments, for either would open the document to somebody
    the other keeps out.
    """
    changes: dict[str, Any] = {}
    for name in ("tenant", "compartment"):
        own, given = getattr(document, name), labels.get(name)
        if own == SHARED and name == "tenant":
            own = None
        if own and given and own != given:
            raise IngestError(
                f"names the {name} {own!r}, the job {given!r}; take it out of one of them",
                document=document.id,
            )
        if (own or given) != getattr(document, name):
            changes[name] = own or given
    if "kind" in labels and document.kind == "document":
        changes["kind"] = labels["kind"]
    if "sensitivity" in labels:
        changes["sensitivity"] = _later(SENSITIVITIES, document.sensitivity, labels["sensitivity"])
    if "trust" in labels:
        changes["trust"] = _later(TRUSTS, document.trust, labels["trust"])
    return document.replace(**changes) if changes else document


def _later(levels: Sequence[str], own: str | None, given: str) -> str:
    """The one further down the levels; a level not listed is beyond them all."""
    if not own:
        return given
    if own not in levels or given not in levels:
        return own if own not in levels else given
    return max(own, given, key=levels.index)


def configuration(transforms: Sequence[Transform], embedder: Embedder | None, legs: Sequence[str]) -> str:
    """Return a digest of how documents are cut and embedded: classes, constructor keywords, model, vector
    legs.

    A keyword is read from the attribute of its name, with or without an underscore before it; of a plugin its
    class and model count, of other values those that can stand in a settings file.
    """
    steps = [
        [type(transform).__module__, type(transform).__qualname__, _keywords(transform)]
        for transform in transforms
    ]
    model = (
        [embedder.model or type(embedder).__qualname__, embedder.dimensions] if embedder and legs else None
    )
    return _digest([steps, model, list(legs)])


def _keywords(transform: Transform) -> dict[str, Any]:
    names = inspect.signature(type(transform)).parameters
    values = {name: getattr(transform, name, getattr(transform, f"_{name}", None)) for name in names}
    named = {
        name: [type(value).__qualname__, getattr(value, "model", "")] if isinstance(value, Plugin) else value
        for name, value in values.items()
    }
    return {name: value for name, value in named.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)


def fingerprint(document: Document, made_by: str) -> str:
    """Return SHA-256 (hex) over what a document says and is labelled with, and over how it will be cut and
    embedded.
    """
    return _digest([made_by, {name: getattr(document, name) for name in _HASHED}])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=_encoded).encode()).hexdigest()


def _encoded(value: Any) -> Any:
    """JSON for what JSON lacks. Raises TypeError for values that look different in every process."""
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, date | bytes):  # datetime is a date
        return repr(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"metadata holds a {type(value).__name__}, which cannot be stored")


async def prepare(document: Document, transforms: Sequence[Transform], mark: str) -> tuple[Entry, list[str]]:
    """Run the transforms over a document and return what goes into the store, with the problems they
    reported.
    """
    chunks: Sequence[Document] = [document]
    for transform in transforms:
        chunks = await _through(transform, chunks)
    problems: list[str] = []
    facts: dict[tuple[Any, ...], Fact] = {}
    for chunk in chunks:
        problems += map(str, _listed(chunk.metadata.get("problems")))
        for fact in _listed(chunk.metadata.get("facts")):
            if isinstance(fact, Fact):
                facts.setdefault(
                    (fact.subject, fact.predicate, fact.object, fact.valid_from, fact.valid_to), fact
                )
            else:
                problems.append(
                    f"fact {fact!r} is no Fact; the transform that made it has to return Fact objects."
                )
    whole = _enriched(document, chunks).replace(metadata=_without(document.metadata))
    entry = Entry(
        document=whole, chunks=_chunks(whole, chunks), facts=tuple(facts.values()), fingerprint=mark
    )
    return entry, problems


async def _through(transform: Transform, chunks: Sequence[Document]) -> list[Document]:
    """What a transform makes of chunks, in their order; several are with it at once, for it may wait for a
    model elsewhere.
    """
    made: list[Sequence[Document]] = [()] * len(chunks)
    places = iter(range(len(chunks)))

    async def work() -> None:
        for place in places:
            made[place] = await transform.transform(chunks[place])
            if place % _BREATH == 0:
                await asyncio.sleep(0)  # most never wait: let others have a turn

    if len(chunks) == 1:
        return list(await transform.transform(chunks[0]))
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(chunks))):
                group.create_task(work())
    except* Exception as several:
        raise several.exceptions[0] from several.exceptions[0].__cause__
    return [each for documents in made for each in documents]


def _enriched(document: Document, chunks: Sequence[Document]) -> Document:
    """The document with what transforms found of it as a whole: links and labels of all chunks, the language
    of most of them.
    """
    links = tuple(dict.fromkeys((*document.links, *(link for chunk in chunks for link in chunk.links))))
    labels = tuple(dict.fromkeys((*document.labels, *(label for chunk in chunks for label in chunk.labels))))
    spoken = Counter(chunk.language for chunk in chunks if chunk.language)
    language = document.language or next((code for code, _ in spoken.most_common(1)), None)
    if (links, labels, language) == (document.links, document.labels, document.language):
        return document
    return document.replace(links=links, labels=labels, language=language)


def _listed(value: Any) -> Sequence[Any]:
    """What metadata holds under a key, as a list: a source may have put anything there."""
    return value if isinstance(value, list | tuple) else () if value is None else (value,)


def _without(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return (
        {key: value for key, value in metadata.items() if key not in _OWN}
        if any(k in metadata for k in _OWN)
        else metadata
    )


def _chunks(document: Document, made: Iterable[Document]) -> tuple[Document, ...]:
    """Give every chunk its parent, an id of its own, and labels no looser than its document's; leave out
    blank ones.
    """
    chunks: list[Document] = []
    taken = {document.id, ""}
    for number, chunk in enumerate(chunk for chunk in made if chunk.content.strip()):
        own = chunk.id if chunk.id not in taken else f"{document.id}#{number}"
        while own in taken:
            own += "'"
        taken.add(own)
        mine = chunk.replace(id=own, parent=document.id, metadata=_without(chunk.metadata))
        chunks.append(mine.replace(**_tightened(chunk, document)))
    return tuple(chunks)


def _tightened(chunk: Document, document: Document) -> dict[str, Any]:
    """The labels of a chunk: its document's, or its own where they are stricter."""
    labels: dict[str, Any] = {
        name: getattr(document, name) or getattr(chunk, name) for name in ("tenant", "compartment")
    }
    for name, levels in (("sensitivity", SENSITIVITIES), ("trust", TRUSTS)):
        own, given = getattr(chunk, name), getattr(document, name)
        labels[name] = _later(levels, own, given) if given else own
    labels["untrusted"] = chunk.untrusted or document.untrusted
    return labels


def leg_text(leg: str, chunk: Document) -> str | None:
    """What a vector leg embeds of a chunk: its key phrases for "keywords" (None without any), else titles and
    search text.
    """
    if leg == "keywords":
        return ", ".join(chunk.keywords) or None
    return "\n".join(part for part in (chunk.title, " > ".join(chunk.path), body(chunk)) if part)
