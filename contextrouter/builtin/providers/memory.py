"""The provider `memory`: documents in this process, searched exactly. The reference the other stores are
measured against.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, NamedTuple, Self

from contextrouter.builtin.providers.example_documents import EXAMPLE_ENTRIES
from contextrouter.builtin.providers.field_weights import USUAL
from contextrouter.builtin.providers.filtering import (
    aligned,
    labelled,
    make_facet,
    matches,
    phrase_keys,
    storable,
)
from contextrouter.builtin.providers.job_runs import add_run_times, add_run_times_to_hits
from contextrouter.builtin.providers.link_degrees import count_degrees
from contextrouter.builtin.providers.memory_documents import read_documents, with_labels
from contextrouter.builtin.providers.mentions import FactNames, Mentions, PhraseName, mention_candidates
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.builtin.providers.queries import query_direction, refuse_other_leg, terms_of
from contextrouter.contracts import Entry, LinkDegrees, Provider, TermStatistics
from contextrouter.errors import IngestError, SourceError
from contextrouter.filters import attributes
from contextrouter.model import Document, Facet, Fact, Hit, Query
from contextrouter.runtime.lru import Lru
from contextrouter.scope import Scope
from contextrouter.text import analysis, bm25, query_syntax
from contextrouter.text.analysis import analyse
from contextrouter.text.fields import fields
from contextrouter.text.languages import Languages, LanguageTerms, Word, analyses
from contextrouter.text.stemming import stem_language, stemmer
from contextrouter.vectors import cosine, unit

_Key = tuple[str, str, str]
"""Tenant, document and chunk."""
_GRAPHS = 8  # scopes whose degrees are kept


class _Chunk(NamedTuple):
    document: Document
    language: str  # whose stems its terms are
    frequencies: Mapping[str, float]  # term -> occurrences, weighted by field
    fields: tuple[tuple[str, ...], ...]  # terms of title, path and body in order, for phrases
    length: int  # terms that are no stop words
    vectors: Mapping[str, tuple[float, ...]]  # leg -> unit vector


class _Stored(NamedTuple):
    document: Document
    chunks: tuple[_Chunk, ...]
    fingerprint: str
    facts: tuple[Fact, ...]


class Memory(Provider):
    """Keeps documents in memory: BM25 (k1 0.9, b 0.4, title > path > body) and exact cosine, in plain Python.

    `documents` are written in the settings: tables with `content` and any other field of a document; one
    without `id` gets one from its content. `embedder` names the embedder whose vectors come with upserted
    entries; None: text only. What was upserted is gone with the process. Raises ValueError for a document
    that does not validate, or has the id of another.
    """

    vector_legs: Sequence[str] = ()

    def __init__(self, *, documents: list[dict[str, Any]] | None = None, embedder: str | None = None) -> None:
        self.embedder = embedder or None
        self.legs: Sequence[str] = ("vector", "text", "keywords") if self.embedder else ("text",)
        self.vector_legs = ("vector", "keywords") if self.embedder else ()
        self.score_range = {leg: (-1.0, 1.0) for leg in self.vector_legs}
        self._stored: dict[tuple[str, str], _Stored] = {}
        self._postings: defaultdict[str, dict[_Key, float]] = defaultdict(dict)
        self._chunks: dict[_Key, _Chunk] = {}
        self._languages: Counter[str] = Counter()  # stem language -> chunks
        self._dimensions: int | None = None
        self._generation = 0
        self._graphs: Lru[tuple[int, Scope | None], tuple[dict[tuple[str, str], int], float]] = Lru(_GRAPHS)
        self._runs: dict[str, datetime] = {}
        for document in read_documents(documents or []):
            self._put(Entry(document=document, chunks=[document]))

    @classmethod
    def example(cls) -> Self:
        """Two documents and no embedder."""
        store = cls()
        for entry in EXAMPLE_ENTRIES:
            store._put(entry)
        return store

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return chunks, best first; text scores are BM25, vector scores cosines in [-1, 1]. Ties go by
        id.
        """
        refuse_other_leg(query, self.legs)
        question = terms_of(query, self._languages)
        if query.leg == "text":
            scores = self._bm25(question, query.scope)
        else:
            question, scores = question.without_phrases(), self._cosines(query)
        found = [(score, key) for key, score in scores.items() if self._admits(key, query, question)]
        found.sort(key=lambda pair: (-pair[0], pair[1][2], pair[1]))
        best = [(score, self._chunks[key]) for score, key in found[: max(query.limit, 0)]]
        leg = "vector" if query.leg == "text" else query.leg
        hits = [
            Hit(document=chunk.document, score=score, vector=chunk.vectors.get(leg)) for score, chunk in best
        ]
        return add_run_times_to_hits(hits, self._runs)

    async def mentions(self, query: Query) -> Sequence[Hit]:
        """Return a chunk of each document whose facts or key phrases name an entity of the query, or of its
        text; as in `sqlite`.
        """
        chunks = self._find_admitted(query)
        places = {key: number for number, key in enumerate(chunks)}
        phrases = [
            PhraseName(key[:2], places[key], (key[2], key[0], key), name)
            for key, chunk in chunks.items()
            for name in phrase_keys(chunk.document)
        ]
        facts = [
            FactNames(owner, {name_key(fact.subject), name_key(fact.object)} - {""})
            for owner, stored in self._stored.items()
            for fact in stored.facts
            if query.scope is None or query.scope.allows(fact)
        ]
        mentions = Mentions(mention_candidates(query), facts, phrases)
        ranked = mentions.rank({key[:2]: (key[2], key[0], key) for key in reversed(list(chunks))})
        best = [(chunks[key], score) for (_, _, key), score in ranked[: max(query.limit, 0)]]
        hits = [Hit(document=c.document, score=score, vector=c.vectors.get("vector")) for c, score in best]
        return add_run_times_to_hits(hits, self._runs)

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count documents by the values of fields or metadata keys, over all the query lets through: of each
        dimension the `query.limit` values of most documents. Plain words do not narrow.
        """
        # dimension and value -> documents
        documents: defaultdict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
        foreign: set[tuple[str, str]] = set()  # dimensions and values that strangers wrote
        for key, chunk in self._find_admitted(query, phrases=True).items():
            values = attributes(chunk.document)
            for dimension in dimensions:
                for value in values.get(dimension, ()):
                    documents[dimension, value].add(key[:2])
                    if chunk.document.untrusted:
                        foreign.add((dimension, value))
        return [
            make_facet(dimension, value, count, untrusted=(dimension, value) in foreign)
            for dimension in dict.fromkeys(dimensions)
            for count, value in sorted(
                [(len(keys), value) for (name, value), keys in documents.items() if name == dimension],
                key=lambda pair: (-pair[0], pair[1]),
            )[: max(query.limit, 0)]
        ]

    def _find_admitted(self, query: Query, *, phrases: bool = False) -> Mapping[_Key, _Chunk]:
        """The chunks that a query lets through, in their order."""
        question = terms_of(query, self._languages)
        question = question if phrases else question.without_phrases()
        return {key: chunk for key, chunk in self._chunks.items() if self._admits(key, query, question)}

    def _admits(self, key: _Key, query: Query, question: LanguageTerms) -> bool:
        chunk = self._chunks[key]
        return matches(chunk.document, query) and question.allows(chunk.fields, chunk.language)

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Replace documents; all entries are checked before the first is stored. Of facts, only the leg
        `mentions` makes use.
        """
        prepared = [self._prepare(entry) for entry in entries]
        self._dimensions = self._sized(prepared)
        for ready in prepared:
            self._store(ready)

    async def record_run(self, origin: str, moment: datetime) -> None:
        """Note that a job was run to its end; its documents have the moment as `synced_at`."""
        self._runs[origin] = moment

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> fingerprint, of one tenant's documents (None: those without a tenant)."""
        return {
            id: stored.fingerprint for (owner, id), stored in self._stored.items() if owner == (tenant or "")
        }

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents are here; None: some have no tenant."""
        return [owner or None for owner in sorted({owner for owner, _ in self._stored})]

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents of one tenant; return how many there were."""
        return sum(self._remove((tenant or "", id)) for id in dict.fromkeys(ids))

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return whole documents, or chunks, by id, in the order asked."""
        known: defaultdict[str, list[Document]] = defaultdict(list)
        for (_, id), stored in sorted(self._stored.items()):
            known[id].append(stored.document)
        for (_, parent, id), chunk in sorted(self._chunks.items()):
            if id != parent:
                known[id].append(chunk.document)
        every = (document for id in dict.fromkeys(ids) for document in known.get(id, ()))
        return add_run_times([d for d in every if scope is None or scope.allows(d)], self._runs)

    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        """Count the links of documents, by their ids or those of their chunks, and the links per document."""
        key = self._generation, scope
        graph = self._graphs.get(key)
        if graph is None:
            documents = [stored.document for stored in self._stored.values()]
            documents = [document for document in documents if scope is None or scope.allows(document)]
            counts, mean = count_degrees(documents)
            names = ((document.tenant or "", document.id) for document in documents)
            graph = dict(zip(names, counts, strict=True)), mean
            self._graphs.put(key, graph)
        by_document, mean = graph
        named = dict.fromkeys(ids)
        degrees: dict[str, int] = {}
        places = ((tenant, parent, id) for tenant, parent, id in self._chunks if id in named)
        whole_documents = ((tenant, id, id) for tenant, id in self._stored if id in named)
        for tenant, parent, id in chain(places, whole_documents):
            if (degree := by_document.get((tenant, parent))) is not None:
                degrees[id] = max(degree, degrees.get(id, 0))
        return LinkDegrees(degrees=degrees, mean=mean)

    async def version(self) -> str:
        """A count of changes."""
        return str(self._generation)

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        """Counts over the chunks that `scope` shows, each in its language; a term that is several words has
        the frequency of the rarest of them.
        """
        shown = self._shown(scope)
        counts = {
            term: sum(
                [
                    min(len(self._found(word, shown, languages)) for word in words)
                    for words, languages in analyses(term, self._languages).items()
                ]
            )
            for term in terms
        }
        return TermStatistics(documents=len(shown), average_length=_average(shown), frequencies=counts)

    def _shown(self, scope: Scope | None) -> Mapping[_Key, _Chunk]:
        if scope is None:
            return self._chunks
        return {key: chunk for key, chunk in self._chunks.items() if scope.allows(chunk.document)}

    def _found(
        self, word: str, shown: Mapping[_Key, _Chunk], languages: Languages = None
    ) -> Mapping[_Key, float]:
        """The frequency of a term in those chunks in `languages` that are shown and have it: what is hidden
        is not counted either.
        """
        found = self._postings.get(word, {})
        if shown is self._chunks and languages is None:
            return found
        return {
            key: found[key]
            for key in found
            if key in shown and (languages is None or shown[key].language in languages)
        }

    def _bm25(self, question: LanguageTerms, scope: Scope | None) -> dict[_Key, float]:
        scores: defaultdict[_Key, float] = defaultdict(float)
        shown = self._shown(scope)
        average = _average(shown) or 1.0
        for word in question.words:
            for together in self._postings_of(word, shown):
                idf = bm25.weight(len(shown), sum(map(len, together)))
                for key, frequency in chain.from_iterable(postings.items() for postings in together):
                    scores[key] += idf * bm25.saturation(frequency, shown[key].length / average)
        return {key: round(score, 9) for key, score in scores.items()}

    def _postings_of(
        self, word: Word, shown: Mapping[_Key, _Chunk]
    ) -> Iterator[Sequence[Mapping[_Key, float]]]:
        """The postings of a word's terms together, or of each term that begins with its one term."""
        (beginning, *_) = word
        if beginning.endswith(query_syntax.FURTHEST):
            terms = [term for term in sorted(self._postings) if term.startswith(beginning[:-1])]
            every = (self._found(term, shown) for term in terms)
            yield from ([postings] for postings in islice(filter(None, every), query_syntax.MOST_EXPANDED))
        else:
            yield [self._found(term, shown, languages) for term, languages in word.items()]

    def _cosines(self, query: Query) -> dict[_Key, float]:
        question = query_direction(query, unit)
        stored = {
            key: chunk.vectors[query.leg] for key, chunk in self._chunks.items() if query.leg in chunk.vectors
        }
        if question is None or not stored:
            return {}
        size = len(next(iter(stored.values())))
        if len(question) != size:
            raise SourceError(
                f"Query vector has {len(question)} dimensions, the store's have {size}; use one embedder for"
                " both."
            )
        return {key: round(cosine(question, vector), 6) for key, vector in stored.items()}

    def _prepare(self, entry: Entry) -> _Stored:
        document = entry.document
        with storable(document):
            aligned(entry, self.vector_legs)
            chunks = labelled(document, entry.chunks)
            vectors = [self._vectors(entry, number) for number in range(len(chunks))]
        facts = tuple([with_labels(fact, document) for fact in entry.facts])
        return _Stored(document, tuple(map(_chunk, chunks, vectors)), entry.fingerprint, facts)

    def _vectors(self, entry: Entry, number: int) -> dict[str, tuple[float, ...]]:
        found: dict[str, tuple[float, ...]] = {}
        for leg, vectors in entry.vectors.items():
            vector = vectors[number]
            direction = None if vector is None else unit(vector)
            if direction is not None:
                found[leg] = tuple(direction)
        return found

    def _sized(self, stored: Sequence[_Stored]) -> int | None:
        """The one length all vectors have; raises IngestError that names two."""
        size = self._dimensions
        for each in stored:
            for vector in (vector for chunk in each.chunks for vector in chunk.vectors.values()):
                if size not in (None, len(vector)):
                    message = (
                        f"has a vector of {len(vector)} dimensions, others have {size}; embed all with one"
                        " model"
                    )
                    raise IngestError(f"Document {each.document.id!r} {message}.", document=each.document.id)
                size = len(vector)
        return size

    def _put(self, entry: Entry) -> None:
        self._store(self._prepare(entry))

    def _store(self, ready: _Stored) -> None:
        key = (ready.document.tenant or "", ready.document.id)
        self._remove(key)
        self._stored[key] = ready
        self._generation += 1
        for chunk in ready.chunks:
            place = (*key, chunk.document.id)
            self._chunks[place] = chunk
            self._languages[chunk.language] += 1
            for term, frequency in chunk.frequencies.items():
                self._postings[term][place] = frequency

    def _remove(self, key: tuple[str, str]) -> bool:
        stored = self._stored.pop(key, None)
        if stored is None:
            return False
        self._generation += 1
        for chunk in stored.chunks:
            place = (*key, chunk.document.id)
            del self._chunks[place]
            self._languages[chunk.language] -= 1
            for term in chunk.frequencies:
                del self._postings[term][place]
                if not self._postings[term]:
                    del self._postings[term]
        return True


def _chunk(document: Document, vectors: Mapping[str, tuple[float, ...]]) -> _Chunk:
    stemmed = stemmer(document.language)
    analysed = tuple(tuple(analyse(text, stemmed)) for text in fields(document))
    frequencies: defaultdict[str, float] = defaultdict(float)
    for weight, terms in zip(USUAL, analysed, strict=True):
        for term in terms:
            frequencies[term] += weight
    language = stem_language(document.language)
    return _Chunk(document, language, frequencies, analysed, analysis.length(analysed), vectors)


def _average(chunks: Mapping[_Key, _Chunk]) -> float:
    return sum([chunk.length for chunk in chunks.values()]) / len(chunks) if chunks else 0.0
