"""Score calibration (step 7): one scale for the scores of sources with different documents.

Each source scores on its own scale and has its own best hit, so neither scores nor ranks say which of two
best hits is better. Here all candidates are scored alike: by BM25 with the term statistics of all sources
together, which gives the scores that one index over everything would give; and by the similarity of vectors,
where all sources have the same embedder. The result is the source `calibrated`, which fusion weighs like any
other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from contextrouter.contracts import Embedder, FactSource, Source, TermStatistics
from contextrouter.model import Hit, RankedList, Vector
from contextrouter.pipeline.candidates import Candidates
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.fusion import leg_weight
from contextrouter.scope import Scope
from contextrouter.settings import CALIBRATED, Rag
from contextrouter.text import analysis, bm25, query_syntax
from contextrouter.text.term_counter import READ, TermCounter
from contextrouter.vectors import Near, can_compare

MOST = 2_000
"""Candidates that are scored; of more, as many from the head of each list."""
BEST = 5
"""How many of a source's best candidates speak for the source."""


async def calibrate(
    candidates: Candidates,
    rag: Rag,
    engine: Engine,
    *,
    scope: Scope | None = None,
    deadline: Deadline | None = None,
    vectors: Mapping[str, Vector] = {},
) -> tuple[str, Mapping[str, float]]:
    """Put documents of several sources on one scale: add calibrated lists to the candidates.

    Returns what was done, for the trace ("" where one source answered), and the leg weights of the lists that
    were added. Statistics are those of what `scope` allows. `vectors` are the question's, by the name of the
    embedder; with `[rag] calibrate_embed` that embedder is asked for the vectors of candidates that have
    none.
    """
    if not several_sources(candidates):
        return "", {}
    deadline = deadline or Deadline()
    names = list(dict.fromkeys(ranked.source for ranked in candidates.lists if ranked.hits))
    words = query_syntax.scored_words({ranked.query: None for ranked in candidates.lists})
    statistics = await engine.statistics.statistics(names, words, scope, deadline)
    calibration = Calibration(
        candidates, rag, engine.sources, statistics, profiles=engine.profiles, vectors=vectors
    )
    trouble = await calibration.embed(engine.embedders, deadline) if rag.calibrate_embed else ""
    return calibration.add() + trouble, calibration.profile


def several_sources(candidates: Candidates) -> bool:
    """Whether more than one source found something."""
    return len({ranked.source for ranked in candidates.lists if ranked.hits}) > 1


class Calibration:
    """Scores candidates on one scale and adds the lists that come of it.

    `sources` are those that were asked, `statistics` what they reported of the words of the queries; a source
    that reported nothing is taken to hold what it returned. `profiles` are the leg weights of their
    embedders.
    """

    def __init__(
        self,
        candidates: Candidates,
        rag: Rag,
        sources: Mapping[str, Source | FactSource],
        statistics: Mapping[str, TermStatistics],
        *,
        profiles: Mapping[str, Mapping[str, float]] = {},
        vectors: Mapping[str, Vector] = {},
    ) -> None:
        self.candidates, self.rag, self.sources = candidates, rag, sources
        self.statistics, self.question_vectors = statistics, vectors
        self.embedded: dict[int, Vector] = {}
        self.lists: list[tuple[RankedList, list[int]]] = []
        for ranked, row in zip(candidates.lists, candidates.rows, strict=True):
            profile = profiles.get(ranked.source, {})
            weight = ranked.weight * leg_weight(ranked.source, ranked.leg, rag, profile)
            if ranked.hits and weight > 0:
                self.lists.append((ranked, row))
        # The whole question has more words than any part of it; the name only says what the list is about.
        queries = [ranked.query for ranked in candidates.lists if ranked.hits]
        self.question = max(queries, key=len, default="")
        self.names = {ranked.source for ranked, _ in self.lists}
        self.profile = next((profiles[name] for name in sorted(self.names) if name in profiles), {})

    async def embed(self, embedders: Mapping[str, Embedder], deadline: Deadline) -> str:
        """Have the best candidates that brought no vector embedded; return what went wrong, for the trace."""
        named = {self._embedder(name) for name in self.names} - {None}
        name = named.pop() if named else None
        if (
            named
            or name is None
            or name not in self.question_vectors
            or name not in embedders
            or not self.lists
        ):
            return ""
        brought = self._brought(self.weights)
        lacking = sorted(
            (n for n in self.texts if n not in brought), key=lambda number: (-self.texts[number], number)
        )
        best = lacking[: self.rag.calibrate_embed]
        documents = [self.candidates.documents[number] for number in best]
        texts = ["\n".join(filter(None, (d.title, " > ".join(d.path), d.content[:READ]))) for d in documents]
        try:
            async with deadline.timeout():
                vectors = await embedders[name].embed(texts) if texts else []
        except Exception as error:  # the order of words stands, whatever keeps the embedder from its work
            return f"; {len(best)} candidates were not embedded ({type(error).__name__})"
        self.embedded = dict(zip(best, vectors, strict=False))
        return ""

    def add(self) -> str:
        """Add the lists to the pool; return what the trace should say."""
        if len(self.names) < 2:
            return "ranks alone: no two sources with a weight found something"
        weights, texts = self.weights, self.texts
        found_by = {number: names for number, (_, names) in weights.items()}
        if near := self._near(weights) if texts else None:
            scores = {n: score * weights[n][0] for n, score in self._together(texts, near, found_by).items()}
            added = [self._make_list("text+vector", self.question, _weigh_by_evidence(scores, found_by))]
        else:
            scores = {n: score * weights[n][0] for n, score in texts.items()}
            words = (
                [self._make_list("text", self.question, _weigh_by_evidence(scores, found_by))]
                if scores
                else []
            )
            added = [*words, *self._vectors()]
        for ranked, numbers in added:
            self.candidates.add(ranked, numbers)
        if not added:
            return "ranks alone: no candidate has a word of the question, and no vectors can be compared"
        silent = sorted(self.names - {*self.statistics})
        scales = " and ".join(dict.fromkeys(ranked.leg for ranked, _ in added))
        return f"by {scales}" + (
            f"; statistics of what was returned for {', '.join(silent)}" if silent else ""
        )

    def _make_list(self, leg: str, query: str, scores: Mapping[int, float]) -> tuple[RankedList, list[int]]:
        ordered = sorted(scores, key=lambda number: (-scores[number], number))
        documents = self.candidates.documents
        hits = [Hit(document=documents[number], score=scores[number]) for number in ordered]
        moments = [ranked.retrieved_at for ranked, _ in self.lists if ranked.retrieved_at is not None]
        added = RankedList(
            source=CALIBRATED,
            leg=leg,
            query=query,
            hits=hits,
            weight=self.rag.calibrate_weight,
            retrieved_at=max(moments, default=None),
        )
        return added, ordered

    @cached_property
    def weights(self) -> dict[int, tuple[float, frozenset[str]]]:
        """Candidate -> the largest weight of the sources that found it, and their names."""
        weights: dict[int, tuple[float, frozenset[str]]] = {}
        share = max(1, MOST // len(self.lists))
        for ranked, numbers in self.lists:
            entry = (ranked.weight, frozenset((ranked.source,)))
            for number in numbers[:share]:
                before = weights.get(number)
                weights[number] = (
                    entry if before is None else (max(before[0], entry[0]), before[1] | entry[1])
                )
        return weights

    @cached_property
    def texts(self) -> dict[int, float]:
        """The BM25 scores above 0, where some leg looks for words: of each candidate by the query that fits
        it best.
        """
        queries_of_words = {ranked.query: None for ranked, _ in self.lists if not self._uses_vectors(ranked)}
        terms = {
            query: [t for t in query_syntax.query_terms(query).terms if not t.endswith(query_syntax.FURTHEST)]
            for query in queries_of_words
        }
        positions = {
            term: position
            for position, term in enumerate(
                dict.fromkeys(term for terms_of_query in terms.values() for term in terms_of_query)
            )
        }
        if not positions:
            return {}
        weights = self.weights
        reader = TermCounter(positions)
        read = {number: reader.count(self.candidates.documents[number]) for number in weights}
        idf = self._idf(positions, {n: weights[n][1] for n in weights}, read)
        average = sum([length for _, length in read.values()]) / len(read) or 1.0
        position_sets = [{positions[term] for term in terms_of_query} for terms_of_query in terms.values()]
        distinct_queries = [
            sorted(positions_of_query)
            for positions_of_query in position_sets
            if not any(positions_of_query < another for another in position_sets)
        ]  # a part never scores above the whole
        scores: dict[int, float] = {}
        for number, (counts, length) in read.items():
            parts = {
                position: idf[position] * bm25.saturation(times, length / average)
                for position, times in counts.items()
            }
            score = max(
                [
                    sum([parts[position] for position in positions_of_query if position in parts])
                    for positions_of_query in distinct_queries
                ]
            )
            if score > 0:
                scores[number] = score
        return scores

    def _near(self, candidates: Collection[int]) -> Near | None:
        """The vectors that candidates brought along, where all sources have one embedder and most with a word
        have a vector.
        """
        embedders = {self._embedder(name) for name in self.names} - (
            {None} if self.rag.calibrate_embed else set()
        )
        question = self.question_vectors.get((embedders.pop() if embedders else None) or "")
        if embedders or question is None or not can_compare():
            return None
        near = Near(question, self._brought(candidates) | self.embedded)
        with_words = len(self.texts.keys() & near.numbers)
        return near if 2 * with_words > len(self.texts) else None

    def _brought(self, candidates: Collection[int]) -> dict[int, Vector]:
        """The vectors that candidates brought along."""
        vectors: dict[int, Vector] = {}
        for ranked, numbers in self.lists:
            if ranked.leg == "vector" or not self._uses_vectors(
                ranked
            ):  # those of other vector legs are not of the text
                for number, hit in zip(numbers, ranked.hits, strict=True):
                    if hit.vector is not None and number in candidates:
                        vectors.setdefault(number, hit.vector)
        return vectors

    def _together(
        self, texts: Mapping[int, float], near: Near, found_by: Mapping[int, frozenset[str]]
    ) -> dict[int, float]:
        """Words and vectors as one score, of which either gives at most 1; vectors near to the question and
        what fits it best.

        A candidate without a vector was in no list of vectors, so it counts as the farthest that its sources
        found.
        """
        highest = max(texts.values())
        words = {number: texts.get(number, 0.0) / highest for number in found_by}

        def both(cosines: Mapping[int, float]) -> dict[int, float]:
            highest_cosine = max(max(cosines.values()), 1e-9)
            lowest_cosine: dict[str, float] = {}
            for number, cosine in cosines.items():
                for name in found_by[number]:
                    lowest_cosine[name] = min(cosine, lowest_cosine.get(name, cosine))
            far = {
                n: max([lowest_cosine.get(name, 0.0) for name in names])
                for n, names in found_by.items()
                if n not in cosines
            }
            return {
                n: word + max(0.0, cosines[n] if n in cosines else far[n]) / highest_cosine
                for n, word in words.items()
            }

        combined = both(near.cosines())
        examples = sorted(near.numbers, key=lambda number: (-combined[number], number))[:BEST]
        return both(near.cosines(examples))

    def _idf(
        self,
        positions: Mapping[str, int],
        found_by: Mapping[int, frozenset[str]],
        read: Mapping[int, tuple[Mapping[int, float], int]],
    ) -> list[float]:
        """How rare each term is over all sources together."""
        total = sum([report.documents for report in self.statistics.values()])
        frequencies = [0] * len(positions)
        for report in self.statistics.values():
            frequencies_of_source: dict[
                int, int
            ] = {}  # a term may come of several words: the commonest has most of it
            for word, frequency in report.frequencies.items():
                for term in analysis.analyse(word):
                    if term in positions:
                        frequencies_of_source[positions[term]] = max(
                            frequencies_of_source.get(positions[term], 0), frequency
                        )
            for position, frequency in frequencies_of_source.items():
                frequencies[position] += frequency
        for number, (counts, _) in read.items():
            silent = len(found_by[number] - self.statistics.keys())
            total += silent
            for position in counts if silent else ():
                frequencies[position] += silent
        return [bm25.weight(total, frequency) for frequency in frequencies]

    def _uses_vectors(self, ranked: RankedList) -> bool:
        source = self.sources.get(ranked.source)
        return isinstance(source, Source) and ranked.leg in source.vector_legs

    def _vectors(self) -> Iterable[tuple[RankedList, list[int]]]:
        """The lists of a vector leg as one, where every source has one and their scores are of one model and
        range.
        """
        together: dict[str, list[tuple[RankedList, list[int]]]] = {}
        for ranked, numbers in self.lists:
            if self._uses_vectors(ranked):
                together.setdefault(ranked.leg, []).append((ranked, numbers))
        for leg, lists in together.items():
            models = {(self._embedder(ranked.source), ranked.score_range) for ranked, _ in lists}
            scored = all(hit.score is not None for ranked, _ in lists for hit in ranked.hits)
            low = next(iter(models))[1]
            if (
                {ranked.source for ranked, _ in lists} != self.names
                or len(models) > 1
                or low is None
                or not scored
            ):
                continue
            scores: dict[int, float] = {}
            for ranked, numbers in lists:
                for number, hit in zip(numbers, ranked.hits, strict=True):
                    score = ((hit.score or 0.0) - low[0]) * ranked.weight
                    scores[number] = max(score, scores.get(number, 0.0))
            yield self._make_list(leg, self.question, scores)

    def _embedder(self, name: str) -> str | None:
        source = self.sources.get(name)
        return source.embedder if isinstance(source, Source) else None


def _weigh_by_evidence(
    scores: Mapping[int, float], found_by: Mapping[int, frozenset[str]]
) -> dict[int, float]:
    """The scores times the square root of how well the best few of the source fit: what fits in a place that
    fits counts more.
    """
    scores_by_source: dict[str, list[float]] = {}
    for number, score in scores.items():
        for name in found_by[number]:
            scores_by_source.setdefault(name, []).append(score)
    evidence = {
        name: math.sqrt(sum(sorted(scores_of_source, reverse=True)[:BEST]) / BEST)
        for name, scores_of_source in scores_by_source.items()
    }
    return {
        number: score * max([evidence[name] for name in found_by[number]]) for number, score in scores.items()
    }
