"""Conversations of two turns over the shipped example: the second turn finds its passage without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.example import ROOT, ingest_example

from contextrouter import ContextRouter

ROWS = [
    row
    for line in (ROOT / "bench" / "conversations.jsonl").read_text("utf-8").splitlines()
    if (row := json.loads(line))["over"] == "demo"
]


@pytest.mark.case("NEW-24")
async def test_the_second_turn_finds_its_passage_and_a_change_of_subject_is_not_joined(tmp_path: Path):
    """By the interpreters that the settings have; of fifteen turns, thirteen are needed."""
    await ingest_example(tmp_path)
    stand, joined = [], {}
    async with ContextRouter.from_toml(tmp_path / "settings.toml") as router:
        for row in ROWS:
            context = await router.route(row["second"], history=({"role": "user", "content": row["first"]},))
            best = [" ".join(envelope.document.content.split()) for envelope in context.envelopes[:3]]
            stand.append(any(row["passage"] in text for text in best))
            joined[row["second"]] = "followup" in context.intent.attributes
    assert (len(ROWS), sum(stand) >= 13) == (15, True)
    assert joined == {row["second"]: row["kind"] != "change" for row in ROWS}
