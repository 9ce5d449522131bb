"""Questions with a person's name: the one row of a table that has it comes first, whatever the vectors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextrouter import ContextRouter, Reranker
from contextrouter.ingest import run
from contextrouter.model import Document
from contextrouter.testing import Legs, hits

FIRST = "Ada Boris Carla Dmitri Elif Fiona Georg Hana Igor Jana".split()
LAST = "Almeida Brandt Castellano Dvorak Eriksen Fontaine".split()
SUBJECTS = ("birth", "height", "birthdays", "growing", "registers", "families")


def write_library(folder: Path) -> list[str]:
    """Write a table of sixty people, and notes that have the words of the questions and no name."""
    folder.mkdir()
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    rows = [f"{name},19{n + 20}-0{n % 9 + 1}-1{n % 9},1.{n % 40 + 50}" for n, name in enumerate(names)]
    (folder / "people.csv").write_text("\n".join(["name,date of birth,height in metres", *rows]))
    for number in range(20):
        subject = SUBJECTS[number % len(SUBJECTS)]
        text = f"# {subject} {number}\n\nWhen somebody was born, and how tall they are, is written down. " * 4
        (folder / f"note{number}.md").write_text(text)
    return names


@pytest.mark.case("USE-07")
async def test_a_name_that_one_row_has_comes_first_with_all_legs(tmp_path: Path):
    names = write_library(tmp_path / "library")
    settings = {
        "rag": {"cache_enabled": False},
        "providers": {"library": {"use": "sqlite", "path": str(tmp_path / "library.db")}},
        "ingest": {"documents": {"from": str(tmp_path / "library"), "to": "library"}},
    }
    async with ContextRouter(settings) as router:
        await run(router)
        for name in names[::7]:
            for question in (f"When was {name} born?", f"How tall is {name}?"):
                context = await router.route(question)
                assert {report.leg for report in context.coverage} == {"text", "vector", "keywords"}
                assert f"{name}," in context.envelopes[0].document.content, question


class Reversing(Reranker):
    """Turns the order round."""

    model = "reversing"

    async def score(self, query: str, documents: list[Document]) -> list[float]:  # type: ignore[override]  # a list is a sequence
        return [float(position) for position in range(len(documents))]


@pytest.mark.case("FUS-22")
async def test_behind_a_reranker_the_score_of_the_fusion_stays_a_signal():
    source = Legs({"text": hits("a b", [4.0, 1.0])})
    router = ContextRouter(
        {"rag": {"stages": ["turn"]}}, providers={"docs": source}, stages={"turn": Reversing()}
    )
    async with router:
        context = await router.route("q")
    assert [e.document.id for e in context.envelopes] == ["b", "a"]
    assert [e.signals["fused"] for e in context.envelopes] == [0.25, 1.0]
    assert [e.provenance[0].place for e in context.envelopes] == [2, 1]
