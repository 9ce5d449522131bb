"""Score calibration (step 7): one scale for the scores of sources with different documents.

Each source scores on its own scale and has its own best hit, so neither scores nor ranks say which of two
best hits is better. Here all candidates are scored alike: by BM25 with the term statistics of all sources
together, which gives the scores that one index over everything would give; and by the similarity of vectors,
where all sources have the same embedder. Fusion hands these values out in the order that each source has of
its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice

from contextrouter.contracts import Embedder, TermStatistics
from contextrouter.model import RankedList, Vector
from contextrouter.pipeline.calibration.pooled_bm25 import score_texts
from contextrouter.pipeline.candidates import Candidates
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.fusion.leg_scores import above_zero
from contextrouter.pipeline.fusion.leg_weights import UNMEASURED, Profiles
from contextrouter.pipeline.fusion.source_order import NO_QUERIES, Queries
from contextrouter.runtime.plugin_calls import containment
from contextrouter.runtime.threads import work_aside
from contextrouter.scope import Scope
from contextrouter.settings import Rag
from contextrouter.text import query_syntax
from contextrouter.text.term_counter import READ
from contextrouter.vectors import Near, can_compare

MOST = 2_000
"""Candidates that are scored; of more, as many from the head of each list."""
BEST = 5
"""How many of a source's best candidates speak for the source."""
EMBEDDING_SHARE = 0.5
"""Share of the time left in which candidates may be embedded."""
INLINE = 200_000
"""Characters of candidates that are scored at once; more are scored in a thread, so that other requests go
on.
"""


MOST_ASKED = 1_000
"""Characters of all queries with which candidates are scored at once; a longer question has many words."""


async def calibrate(
    candidates: Candidates,
    rag: Rag,
    engine: Engine,
    *,
    queries: Queries = NO_QUERIES,
    scope: Scope | None = None,
    deadline: Deadline | None = None,
) -> tuple[str, Mapping[int, float]]:
    """Return what was done, for the trace ("" where one source answered), and the value of each candidate by
    number; no values where nothing can be compared, or the time was too short.

    Statistics are those of what `scope` allows. With `[rag] calibrate_embed` the embedder of the sources is
    asked for the vectors of candidates that have none.
    """
    if not several_sources(candidates):
        return "", {}
    deadline = deadline or Deadline()
    statistics = await statistics_of(candidates, engine, scope, deadline)
    calibration = Calibration(
        candidates, rag, engine.profiles, statistics, queries=queries, deadline=deadline
    )
    try:
        size = sum([min(len(document.content), READ) for document in candidates.documents])
        if size > INLINE or sum(map(len, _queries(candidates))) > MOST_ASKED:
            await work_aside(lambda: calibration.texts)
        trouble = await calibration.embed(engine) if rag.calibrate_embed else ""
        values, note = calibration.values()
    except TimeoutError:
        return "ranks alone: the time was too short to compare the candidates", {}
    return note + trouble, values


async def statistics_of(
    candidates: Candidates, engine: Engine, scope: Scope | None, deadline: Deadline
) -> Mapping[str, TermStatistics]:
    """Return the statistics, in `scope`, of the words of the queries, by source that reports them in time."""
    names = list(dict.fromkeys(ranked.source for ranked in candidates.lists if ranked.hits))
    queries = _queries(candidates)
    if sum(map(len, queries)) > MOST_ASKED:
        words = await work_aside(query_syntax.scored_words, queries)
    else:
        words = query_syntax.scored_words(queries)
    return await engine.statistics.statistics(names, words, scope, deadline)


def _queries(candidates: Candidates) -> list[str]:
    return list(dict.fromkeys([ranked.query for ranked in candidates.lists]))


def several_sources(candidates: Candidates) -> bool:
    """Whether more than one source found something."""
    return len({ranked.source for ranked in candidates.lists if ranked.hits}) > 1


class Calibration:
    """Scores candidates on one scale.

    `statistics` are what sources reported of the words of the queries; a source that reported nothing is
    taken to hold what it returned. Raises TimeoutError when the deadline comes before all texts are read.
    """

    def __init__(
        self,
        candidates: Candidates,
        rag: Rag,
        profiles: Profiles,
        statistics: Mapping[str, TermStatistics],
        *,
        queries: Queries = NO_QUERIES,
        deadline: Deadline | None = None,
    ) -> None:
        self.candidates, self.rag, self.profiles, self.statistics = candidates, rag, profiles, statistics
        self.queries, self.deadline = queries, deadline or Deadline()
        self.embedded: dict[int, Vector] = {}
        self.positions = [
            n for n, ranked in enumerate(candidates.lists) if ranked.hits and self._counts(ranked)
        ]
        self.lists = [(candidates.lists[n], candidates.rows[n]) for n in self.positions]
        self.names = {ranked.source for ranked, _ in self.lists}
        embedders = {profiles[name].embedder for name in self.names}
        if rag.calibrate_embed:  # then what has no vector gets one
            embedders -= {None}
        self.embedder = embedders.pop() if len(embedders) == 1 else None
        self.question_vector = queries.vectors.get((self.embedder or "", queries.question))

    def _counts(self, ranked: RankedList) -> bool:
        profile = self.profiles[ranked.source]
        return ranked.weight > 0 and profile.leg_weight(ranked.source, ranked.leg, self.rag) > 0

    async def embed(self, engine: Engine) -> str:
        """Have the best candidates that brought no vector embedded; return what went wrong, for the trace."""
        name, embedders = self.embedder, engine.embedders
        if name is None or self.question_vector is None or name not in embedders or not self.lists:
            return ""
        brought = self._brought
        lacking = sorted(
            (n for n in self.texts if n not in brought), key=lambda number: (-self.texts[number], number)
        )
        best = lacking[: self.rag.calibrate_embed]
        documents = [self.candidates.documents[number] for number in best]
        texts = ["\n".join(filter(None, (d.title, " > ".join(d.path), d.content[:READ]))) for d in documents]
        if not texts:
            return ""
        try:
            embedding = self._embed(embedders[name], texts)
            with containment():
                abandoned = engine.limits.abandoned.of("embedder", name)
                answer = await self.deadline.share(EMBEDDING_SHARE).run(embedding, abandoned)
                vectors = list(islice(answer, len(best)))
        except Exception as error:  # the order of words stands, whatever keeps the embedder from its work
            return f"; {len(best)} candidates were not embedded ({type(error).__name__})"
        self.embedded = dict(zip(best, vectors, strict=False))
        lacking_vectors = len(best) - len(vectors)
        return f"; {lacking_vectors} candidates were not embedded" if lacking_vectors > 0 else ""

    @staticmethod
    async def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
        return await embedder.embed(texts)

    def values(self) -> tuple[dict[int, float], str]:
        """Return the values by number, and what the trace should say."""
        if len(self.names) < 2:
            return {}, "ranks alone: no two sources with a weight found something"
        texts = self.texts if self._weight("text") or self._cosines is None else {}
        if texts and self._cosines is not None:
            scale, scores = "text+vector", self._together(texts, self._cosines)
        elif texts:
            scale, scores = "text", {**texts}
        elif self._cosines is not None:
            scale, scores = "vector", self._by_cosine(self._cosines)
        else:
            scale, scores = "vector", self._leg_scores()
        if not any(score > 0 for score in scores.values()):
            note = "ranks alone: no candidate has a word of the question, and no vectors can be compared"
            return {}, note
        weighed = self._weigh_by_evidence(scores)
        values = {number: value * self.weights[number][0] for number, value in weighed.items()}
        if not all(map(math.isfinite, values.values())):
            return {}, "ranks alone: scores or weights are too large to be compared"
        silent = sorted(self.names - {*self.statistics}) if texts else []
        note = f"by {scale}"
        if silent:
            note += f"; statistics of what was returned for {', '.join(silent)}"
        if len(self.weights) < len(self.candidates):
            note += f"; the best {len(self.weights):,} of {len(self.candidates):,} candidates"
        return values, note

    def _weight(self, leg: str) -> float:
        """Return the weight of words, or of vectors, in the values."""
        if leg in self.rag.leg_weights:
            return self.rag.leg_weights[leg]
        default = UNMEASURED.get(leg, 1.0)
        return self.profiles[min(self.names)].score_weights.get(leg, default) if self.names else default

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
    def texts(self) -> Mapping[int, float]:
        """The BM25 scores above 0, where some leg looks for words."""
        queries = {
            ranked.query: None
            for ranked in self.candidates.lists
            if ranked.source in self.names and ranked.leg not in self.profiles[ranked.source].vector_legs
        }
        if not queries or not self.lists:
            return {}
        found_by = {number: sources for number, (_, sources) in self.weights.items()}
        return score_texts(self.candidates.documents, found_by, [*queries], self.statistics, self.deadline)

    @cached_property
    def _brought(self) -> dict[int, Vector]:
        """The vectors that candidates brought along."""
        other_legs = {leg for name in self.names for leg in self.profiles[name].vector_legs} - {"vector"}
        vectors = self.candidates.vectors(self.positions, other_legs)
        return {number: vector for number, vector in vectors.items() if number in self.weights}

    @cached_property
    def _cosines(self) -> Near | None:
        """The vectors of candidates, where all sources have one embedder and most candidates with a word, or
        most of all where none has, have a vector.
        """
        if self.question_vector is None or self._weight("vector") <= 0 or not can_compare():
            return None
        near = Near(self.question_vector, self._brought | self.embedded)
        compared = self.texts.keys() or self.weights.keys()
        return near if 2 * len(compared & {*near.numbers}) > len(compared) else None

    def _together(self, texts: Mapping[int, float], near: Near) -> dict[int, float]:
        """Return words and vectors as one score: words at most 1, vectors at most the weight of their leg."""
        highest = max(texts.values())
        words, vectors = self._weight("text"), self._weight("vector")

        def both(cosines: Mapping[int, float]) -> dict[int, float]:
            near_ones = self._near_ones(cosines)
            return {n: words * texts.get(n, 0.0) / highest + vectors * near_ones[n] for n in self.weights}

        return self._with_feedback(near, both)

    def _by_cosine(self, near: Near) -> dict[int, float]:
        return self._with_feedback(near, self._near_ones)

    def _with_feedback(
        self, near: Near, score: Callable[[Mapping[int, float]], dict[int, float]]
    ) -> dict[int, float]:
        """Return the scores by nearness to the question and to the best few by the question alone
        (Rocchio).
        """
        first = score(near.cosines())
        examples = sorted(near.numbers, key=lambda number: (-first[number], number))[:BEST]
        return score(near.cosines(examples))

    def _near_ones(self, cosines: Mapping[int, float]) -> dict[int, float]:
        """Return each cosine ÷ the highest one.

        A candidate without a vector was in no list of vectors, so it counts as the farthest that its sources
        found.
        """
        highest = max(max(cosines.values()), 1e-9)
        lowest: dict[str, float] = {}
        for number, cosine in cosines.items():
            for name in self.weights[number][1]:
                lowest[name] = min(cosine, lowest.get(name, cosine))
        return {
            n: max(0.0, cosines[n] if n in cosines else max([lowest.get(name, 0.0) for name in names]))
            / highest
            for n, (_, names) in self.weights.items()
        }

    def _leg_scores(self) -> dict[int, float]:
        """Return the scores of a vector leg that every source has, where they are of one model and range."""
        by_leg: dict[str, list[tuple[RankedList, list[int]]]] = {}
        for ranked, numbers in self.lists:
            if ranked.leg in self.profiles[ranked.source].vector_legs:
                by_leg.setdefault(ranked.leg, []).append((ranked, numbers))
        for lists in by_leg.values():
            models = {(self.profiles[ranked.source].embedder, ranked.score_range) for ranked, _ in lists}
            low = next(iter(models))[1]
            everywhere = {ranked.source for ranked, _ in lists} == self.names
            above = [above_zero(ranked.hits, low and low[0]) for ranked, _ in lists]
            if everywhere and len(models) == 1 and low is not None and None not in above:
                scores: dict[int, float] = {}
                for (_, numbers), values in zip(lists, above, strict=True):
                    for number, value in zip(numbers, values or (), strict=True):
                        scores[number] = max(value, scores.get(number, 0.0))
                return {number: score for number, score in scores.items() if number in self.weights}
        return {}

    def _weigh_by_evidence(self, scores: Mapping[int, float]) -> dict[int, float]:
        """Return the scores times the square root of how well the best few of the source fit: what fits in a
        place that fits counts more.
        """
        by_source: dict[str, list[float]] = {}
        for number, score in scores.items():
            for name in self.weights[number][1]:
                by_source.setdefault(name, []).append(score)
        evidence = {
            name: math.sqrt(sum(sorted(own, reverse=True)[:BEST]) / BEST) for name, own in by_source.items()
        }
        return {
            number: score * max([evidence[name] for name in self.weights[number][1]])
            for number, score in scores.items()
        }
