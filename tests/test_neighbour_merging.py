"""Chunks that stand next to each other in a document are one block of the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextrouter import Context, ContextRouter, Document, Hit
from contextrouter.ingest import run
from contextrouter.testing import Fixed
from contextrouter.text import tokens

MANUAL = """# Pump manual

## Before you start

Read the otter page. Close the valve of the pump.

## Start

Press the green button. The otter lamp lights up.

## Stop

Press the red button and wait. Nothing else is needed here, so the second lamp stays dark.

## Care

Oil the otter wheel once a year.
"""
SETTINGS = """
[providers.lib]
use = "sqlite"
path = "lib.db"
embedder = ""
[ingest.j]
from = "texts"
to = "lib"
transforms = ["headings"]
[transforms.headings]
target = 20
maximum = 40
overlap = 0
"""
TEXT = "The pump is old. It is green. It works. It hums all night and all day."


def chunk(start: int, end: int, text: str = TEXT, **fields: Any) -> Hit:
    """The slice of a text as a chunker cuts it."""
    metadata = {"start": start, "end": end, **fields.pop("metadata", {})}
    content = fields.pop("content", text[start:end])
    fields = {"id": f"d#{start}", "parent": "d", "title": "Pump", **fields}
    return Hit(document=Document(content=content, metadata=metadata, **fields))


async def asked(*chunks: Hit, **rag: Any) -> Context:
    settings = {"rag": {"cache_enabled": False, "interpreters": [], **rag}}
    async with ContextRouter(settings, connectors={"s": Fixed(list(chunks))}) as router:
        return await router.route("how does the pump work")


def contents(context: Context) -> list[str]:
    return [envelope.document.content for envelope in context.envelopes]


async def in_store(folder: Path, question: str, **rag: Any) -> Context:
    (folder / "texts").mkdir(exist_ok=True)
    (folder / "texts" / "manual.md").write_text(MANUAL)
    (folder / "settings.toml").write_text(SETTINGS)
    await run(folder / "settings.toml")
    async with ContextRouter.from_toml(folder / "settings.toml", rag=rag) as router:
        return await router.route(question)


@pytest.mark.case("USE-13")
async def test_neighbours_of_a_document_are_one_block_in_reading_order(tmp_path: Path) -> None:
    context = await in_store(tmp_path, "otter")
    start, care = 0, MANUAL.index("## Stop")
    assert contents(context) == [MANUAL[MANUAL.index("## Care") :].strip(), MANUAL[start:care].strip()]
    assert context.text.count("### [") == 2
    apart = await in_store(tmp_path, "otter", merge_neighbours=False)
    assert [len(context.citations), len(apart.citations)] == [2, 3]
    (step,) = [step for step in context.trace.steps if step.name == "merge"]
    assert step.note.startswith("neighbours are one block: about ")
    assert [envelope.dropped for envelope in step.lost] == [
        f"merge: is part of the block of {context.envelopes[1].document.id!r}"
    ]


async def test_a_block_stands_where_its_best_chunk_stood_and_keeps_its_provenance() -> None:
    other = Hit(document=Document(id="other", content="Another pump."))
    context = await asked(chunk(30, 39), other, chunk(17, 29))
    assert contents(context) == ["It is green.\nIt works.", "Another pump."]
    best = context.envelopes[0]
    assert (best.document.id, best.provenance[0].rank) == ("d#30", 1)
    assert (best.document.metadata["start"], best.document.metadata["end"]) == (17, 39)
    assert best.document.metadata["chunks"] == ("d#17", "d#30")


async def test_an_overlap_stands_in_the_block_once() -> None:
    context = await asked(chunk(17, 39), chunk(0, 29))
    assert contents(context) == ["The pump is old. It is green. It works."]


async def test_a_table_repeats_its_header_once() -> None:
    table = "a,b\n1,2\n3,4\n5,6\n"
    first = chunk(0, 8, table)
    second = chunk(8, 16, table, content="a,b\n" + table[8:16], metadata={"header": (0, 4)})
    assert contents(await asked(second, first)) == [table]


@pytest.mark.parametrize(
    "second",
    [
        chunk(40, 60),  # a sentence lies between
        chunk(17, 29, parent="e"),
        chunk(17, 29, tenant="acme"),
        chunk(17, 29, compartment="hr"),
        chunk(17, 29, sensitivity="internal"),
        chunk(17, 29, untrusted=True),
        chunk(17, 29, content="It is as green as grass, and was filled in by a stage."),
        chunk(17, 29, metadata={"start": "17"}),
    ],
    ids=["apart", "document", "tenant", "compartment", "level", "stranger", "other text", "no place"],
)
async def test_other_chunks_stay_alone(second: Hit) -> None:
    assert len((await asked(chunk(0, 16), second)).envelopes) == 2


async def test_a_neighbour_that_does_not_fit_into_the_budget_takes_nothing_with_it() -> None:
    """Both together are longer than the budget; the best one fits."""
    words = " ".join(f"word{number}" for number in range(200))
    text = f"The best chunk. {words}"
    whole = await asked(chunk(0, 15, text), chunk(16, len(text), text), token_budget=60)
    assert contents(whole) == ["The best chunk."]
    assert tokens.count(whole.text) <= 60


async def test_sections_without_a_common_heading_keep_theirs_in_the_text() -> None:
    text = "## Red\n\nRose.\n\n## Blue\n\nSky."
    parts = (
        chunk(0, 13, text, path=("Colours", "Red")),
        chunk(15, len(text), text, path=("Colours", "Blue")),
    )
    context = await asked(*parts)
    assert context.envelopes[0].document.path == ("Colours",)
    assert contents(context) == [text]


async def test_what_is_merged_is_no_failure_of_a_source() -> None:
    context = await asked(chunk(0, 16), chunk(17, 29))
    assert (context.degraded, context.outcome) == (False, "answered")
