"""Stages, rerankers, embedders and transforms that break one law each."""

from __future__ import annotations

import time
from collections import UserList
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from breaking import breaks

from contextrouter.contracts import StageContext
from contextrouter.model import Document, Envelope, Vector
from contextrouter.testing import Hashing, Lines, Overlap, Reversing, envelope


class Changing(Reversing):
    """Changes what goes on."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return self.changed(list(await super().apply(envelopes, context)))

    def changed(self, envelopes: list[Envelope]) -> Any:
        return envelopes


@breaks("answers_are_envelopes")
class NoListOfEnvelopes(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return UserList(envelopes)


@breaks("nothing_enters_unsealed")
class Forges(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return [*envelopes, envelope("forged")]


@breaks("no_envelope_comes_twice")
class ReturnsTwice(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return envelopes + envelopes[:1]


@breaks("envelope_keeps_its_document")
class Relabels(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return [each.replace(document=each.document.replace(sensitivity="public")) for each in envelopes]


@breaks("numbers_are_finite")
class SignalsNoNumber(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return [each.scored(each.score, gain=float("inf")) for each in envelopes]


@breaks("numbers_are_finite")
class NotNormalized(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        return [each.scored(each.score, 100.0) for each in envelopes]


@breaks("nothing_in_nothing_out")
class NeedsOne(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        best = max(each.score for each in envelopes)
        return [each.scored(each.score / best) for each in envelopes]


@breaks("switch_is_a_key_of_rag")
class HasASwitchThatIsNone(Reversing):
    switch = "enable_rerankers"


@breaks("notes_are_texts")
class LeavesANumber(Reversing):
    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        context.note(len(envelopes))  # type: ignore[arg-type]  # a wrong type on purpose
        return await super().apply(envelopes, context)


@breaks("time_is_the_request_s")
class LooksAtTheClock(Changing):
    def changed(self, envelopes: list[Envelope]) -> Any:
        year = datetime.now(UTC).year
        return [each.scored(each.score, year=float(year)) for each in envelopes]


@breaks("one_score_per_document")
class OneScoreMore(Overlap):
    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        return [
            *await super().score(query, documents),
            *([0.0] if query == "moon" and len(documents) == 1 else []),
        ]


@breaks("reranker_scores_are_finite")
class NoScoreForBlanks(Overlap):
    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        scores = await super().score(query, documents)
        return [s if d.content.strip() else float("nan") for s, d in zip(scores, documents, strict=True)]


@breaks("score_goes_with_its_document")
class ScoresPlaces(Overlap):
    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        return [score - place for place, score in enumerate(await super().score(query, documents))]


@breaks("pointwise_scores_stand_alone")
class ScoresAgainstTheBest(Overlap):
    """Divides by the best score of all, and says that each score stands alone."""

    pointwise = True

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        scores = await super().score(query, documents)
        return [score / (max(scores) or 1.0) for score in scores]


@breaks("reranker_keeps_every_document")
class DropsBlanks(Overlap):
    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return [each for each in await super().apply(envelopes, context) if each.document.content.strip()]


@breaks("model_is_named")
class NoName(Hashing):
    def __init__(self) -> None:
        super().__init__()
        self.model = ""


@breaks("weights_are_numbers")
class HeavyText(Hashing):
    score_weights: ClassVar = {"vector": "much"}


@breaks("one_vector_per_text")
class OneVectorLess(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        vectors = await super().embed(texts)
        return vectors[:-1] if query and len(texts) > 1 else vectors


@breaks("vectors_have_the_dimensions")
class ShortForBlanks(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [
            v if text.strip() else [0.0] for v, text in zip(await super().embed(texts), texts, strict=True)
        ]


@breaks("vectors_have_length_one")
class TwiceAsLong(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [[2 * value for value in vector] for vector in await super().embed(texts)]


@breaks("vectors_are_finite")
class NoVectorOfTheMoon(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        nan = [float("nan")] * self.dimensions
        return [nan if "🌕" in text else v for v, text in zip(await super().embed(texts), texts, strict=True)]


@breaks("batch_is_as_singles")
class OnlyTheFirstIsRight(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [vector[::-1] if place else vector for place, vector in enumerate(await super().embed(texts))]


@breaks("no_texts_no_vectors")
class NeedsATextAtLeast(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        if not texts:
            raise IndexError("no texts")
        return await super().embed(texts)


@breaks("blank_texts_are_no_errors")
class NeedsAWord(Hashing):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        if query and not texts[0].strip():
            raise ValueError("empty text")
        return await super().embed(texts)


@breaks("same_answer_in_another_process")
class HashesWords(Hashing):
    """Counts words by what `hash()` makes of them."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [self.counted(text) for text in texts]

    def counted(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in text.split():
            vector[hash(word) % self.dimensions] += 1.0
        length = sum(value * value for value in vector) ** 0.5 or 1.0
        return [value / length for value in vector]


class Cutting(Lines):
    """Changes what comes of a document."""

    async def transform(self, document: Document) -> Sequence[Document]:
        return self.changed(list(await super().transform(document)), document)

    def changed(self, made: list[Document], document: Document) -> Any:
        return made


@breaks("answers_are_documents")
class NoListOfDocuments(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return UserList(made)


@breaks("no_text_is_lost")
class LosesTheLast(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return made[:-1] if len(made) > 3 else made


@breaks("no_text_is_lost")
class LosesACharacter(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return [each.replace(content=each.content[:999]) for each in made]


@breaks("ids_are_unique")
class OneIdForAll(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return [each.replace(id=f"{document.id}#") for each in made]


@breaks("chunks_name_their_parent")
class NoParent(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return [each.replace(parent=None) for each in made]


@breaks("labels_are_inherited")
class LosesTheLabels(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        return [each.replace(sensitivity=None) for each in made]


@breaks("blank_documents_are_no_errors")
class NeedsAText(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        if not document.content.strip():
            raise IndexError("nothing to cut")
        return made


@breaks("long_line_is_no_obstacle")
class LongOverLongLines(Cutting):
    def changed(self, made: list[Document], document: Document) -> Any:
        if len(document.content) > 500_000:
            time.sleep(0.8)
        return made


OBEYING: tuple[type[Any], ...] = (Changing, Overlap, Hashing, Cutting)
