"""Halves of characters that a source sends are replaced at the door, so that every output can carry them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter, Document, Fact, Hit
from contextrouter.testing import Facts, Fixed

LONE = "otter \ud83d"
WHOLE = "otter \ufffd"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


@pytest.mark.case("RSS-09")
async def test_a_lone_surrogate_becomes_the_replacement_character_everywhere():
    document = Document(
        content=LONE, id="1", title=LONE, path=(LONE,), metadata={"by": [LONE], LONE: {"a": LONE}}
    )
    fact = Fact(subject=LONE, predicate="is", object=LONE, attributes={"by": LONE})
    emoji = Document(content="otter 🦦", id="2", metadata={"by": ["🦦"]})
    sources = {"s": Fixed([Hit(document=document), Hit(document=emoji)])}
    async with ContextRouter(connectors=sources, facts={"f": Facts([fact])}) as router:
        context = await router.route("otter")
    first, second = (envelope.document for envelope in context.envelopes)
    assert (first.content, first.title, first.path) == (WHOLE, WHOLE, (WHOLE,))
    assert first.metadata == {"by": [WHOLE], WHOLE: {"a": WHOLE}}
    assert (second.content, second.metadata) == ("otter 🦦", {"by": ["🦦"]})
    assert (context.facts[0].subject, context.facts[0].attributes) == (WHOLE, {"by": WHOLE})
    context.text.encode()


@pytest.mark.case("RSS-09")
@pytest.mark.parametrize("options", [(), ("--explain",), ("--json",), ("--text",)])
def test_a_feed_with_half_an_emoji_is_shown(cli: CommandLine, tmp_path: Path, options: tuple[str, ...]):
    item = {"id": "1", "url": "http://x.example/1", "title": LONE, "content_text": LONE}
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": "t", "items": [item]}
    (tmp_path / "f.json").write_text(json.dumps(feed))
    (tmp_path / "settings.toml").write_text('[connectors.n]\nuse = "rss"\npaths = ["f.json"]\n')
    shown = cli("route", "otter", *options, cwd=tmp_path)
    assert shown.code == 0
    assert WHOLE in (json.loads(shown.out)["text"] if options == ("--json",) else shown.out)
