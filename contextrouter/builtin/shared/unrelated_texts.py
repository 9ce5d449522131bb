"""Unrelated texts: what an embedder makes of questions that have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, pstdev
from typing import NamedTuple

from contextrouter.contracts import Embedder
from contextrouter.errors import ContractError
from contextrouter.model import Vector
from contextrouter.vectors import cosine, direction

_QUESTIONS = (
    "How tall is the highest mountain of the country?",
    "Which bus goes to the harbour on Sunday?",
    "What can I cook with lentils and carrots?",
    "When was the composer born?",
    "How do I repair a flat bicycle tyre?",
    "Who won the football match yesterday?",
    "What is the capital of Australia?",
    "Why is the sky blue?",
    "How much does a new passport cost?",
    "What are the symptoms of a cold?",
    "Which films did she direct?",
    "How many people live in this city?",
    "Where can I park near the museum?",
    "When does the shop close today?",
    "What did my sister say about her holiday?",
    "How do I water cactus plants?",
    "Which tax form do I need this year?",
    "How long do cats sleep?",
    "What is the exchange rate of the euro?",
    "Who painted the ceiling of the chapel?",
    "How do I reset my password?",
    "What is the weather like in June?",
    "Which language is spoken in Brazil?",
    "How do vaccines work?",
    "What happened in the war of 1812?",
    "Where is the nearest pharmacy?",
    "Can I return shoes without a receipt?",
    "How far away is the moon?",
    "Which guitar is good for a beginner?",
    "What time is my appointment tomorrow?",
)
# Measured with 48 subjects of three example questions each. Of 280 questions about none of them, 2 % were
# near one by `static`, and none by `minilm`. 3 deviations let 12 % and 2 % in.
_DEVIATIONS = 3.5


class Unrelated(NamedTuple):
    """Cosines of unrelated texts by one embedder: their mean, and `related_from`, which hardly any of them
    reaches.
    """

    mean: float
    related_from: float


async def measure_unrelated(embedder: Embedder) -> Unrelated:
    """Embed thirty questions about different things, and compare each with each.

    The mean is never below the embedder's own `unrelated`. Raises what the embedder raises.
    """
    vectors = [direction(vector) for vector in await embed_alike(embedder, _QUESTIONS)]
    cosines = [cosine(a, b) for a, b in combinations(vectors, 2)]
    mean = max(fmean(cosines), embedder.unrelated)
    return Unrelated(mean, mean + _DEVIATIONS * pstdev(cosines))


async def embed_alike(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
    """Embed short texts, all as questions, so that they can be compared with each other.

    Raises ContractError when there is not one vector for each text.
    """
    vectors = await embedder.embed(list(texts), query=True)
    if len(vectors) != len(texts):
        message = f"embedder returned {len(vectors)} vectors for {len(texts)} texts"
        raise ContractError(message, law="one vector per text")
    return vectors
