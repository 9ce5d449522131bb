"""The reranker `similarity`: compares the best documents again, by a stronger embedder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from contextrouter.contracts import Embedder, Reranker
from contextrouter.errors import ContractError
from contextrouter.model import Document
from contextrouter.text import analysis, bm25, query_syntax
from contextrouter.vectors import cosine, direction

_READ = 20_000


class Similarity(Reranker):
    """Scores by `weight` × cosine + (1 − `weight`) × the share of the question's terms that a document has.

    Terms are weighed by their rarity among the documents. `embedder` names the embedder; with `minilm`
    nothing leaves the process. A term counts as BM25 has it saturate. Cosines below 0 count as 0, so that
    scores lie between 0 and 1. Set `top_n` as low as the time allows: each text is embedded.
    """

    def __init__(self, *, embedder: Embedder, weight: float = 0.5) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"weight {weight!r} is not between 0 and 1.")
        self._embedder, self._weight = embedder, weight

    @classmethod
    def example(cls) -> Self:
        """With an embedder that counts words."""
        from contextrouter.builtin.stages.reranking_example import HashedWords  # nobody else needs it

        return cls(embedder=HashedWords())

    async def open(self) -> None:
        """Note which model the embedder, which is open by now, has."""
        model = self._embedder.model
        self.model = f"{model} {self._weight!r}" if model else ""

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """One score in [0, 1] per document."""
        texts = [
            f"{document.title}\n{document.content}" if document.title else document.content
            for document in documents
        ]
        (embedding,) = await self._embedder.embed([query], query=True)
        vectors = await self._embedder.embed(texts)
        if len(vectors) != len(texts):
            raise ContractError(
                f"embedder returned {len(vectors)} vectors for {len(texts)} texts", law="one vector per text"
            )
        question = direction(embedding)
        cosines = [max(0.0, cosine(question, direction(vector))) for vector in vectors]
        return [
            self._weight * a + (1 - self._weight) * b
            for a, b in zip(cosines, shares(query, texts), strict=True)
        ]


def shares(query: str, texts: Sequence[str]) -> list[float]:
    """How much of the question each text has, in [0, 1]: its terms, each saturated and weighed by its rarity
    among the texts.
    """
    term_counts = [Counter(analysis.analyse(text[:_READ])) for text in texts]
    average = sum([counts.total() for counts in term_counts]) / len(term_counts) if term_counts else 0.0
    terms = [
        term for term in query_syntax.query_terms(query).terms if not term.endswith(query_syntax.FURTHEST)
    ]
    rarity = {
        term: bm25.weight(len(texts), sum([term in counts for counts in term_counts])) for term in terms
    }
    maximum = sum(rarity.values()) * (bm25.K1 + 1.0)
    if not maximum:
        return [0.0] * len(texts)
    return [
        sum(
            [
                rarity[t] * bm25.saturation(counts[t], counts.total() / (average or 1.0))
                for t in terms
                if t in counts
            ]
        )
        / maximum
        for counts in term_counts
    ]
