"""txtai: one hybrid index of all sources. It has no fusion of several sources, and no asynchronous search."""

from __future__ import annotations

import numpy as np
from task import TOP, Ask, Embed, Sources
from txtai import Embeddings


# What a user writes: counted from here.
async def build(sources: Sources, embed: Embed, fault: str, option: str) -> Ask:
    """Fill the index; return a function that asks."""
    if fault:
        raise NotImplementedError("asks no other source")

    def transform(texts: list[str]) -> np.ndarray:
        return np.array(embed(texts), dtype=np.float32)

    index = Embeddings(method="external", transform=transform, hybrid=True)
    index.index((row.id, f"{row.title}\n{row.text}", None) for rows in sources.values() for row in rows)

    async def ask(question: str) -> list[str]:
        return [id for id, _ in index.search(question, TOP)]

    return ask
