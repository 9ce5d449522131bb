"""Passages of one language: the text leg with the stems of their language, and without."""

from __future__ import annotations

from pathlib import Path

from judged import read
from measures import NDCG, at_least, made, table
from systems import Routed

LANGUAGES = ("de", "el", "es", "fr", "ro", "ru", "tr")
OWN, NONE = "text leg", "text leg, without language"


async def languages(data: Path, build: Path) -> bool:
    """Measure each language of the collection; whether its stems rank better than those of English."""
    held = []
    for language in LANGUAGES:
        collection = read(data / f"xquad-{language}")
        if not collection.documents:
            continue
        systems = [Routed(OWN, collection, build), Routed(NONE, collection.unlabelled, build)]
        runs = [await made(system, collection, build / collection.name / "runs") for system in systems]
        means = table(runs, collection, (NDCG,), NONE)
        held.append(at_least(f"{language}, {OWN}", means[OWN][NDCG], means[NONE][NDCG], above=True))
    return all(held)
