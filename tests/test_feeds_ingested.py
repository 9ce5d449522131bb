"""A feed can be ingested: its items are documents, and those that leave the feed stay in the store."""

from __future__ import annotations

from pathlib import Path

from contextrouter import ContextRouter
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.ingest import run

FEED = '<rss version="2.0"><channel><title>Otters</title>{items}</channel></rss>'
ITEM = (
    "<item><guid>{name}</guid><title>Otter {name}</title><link>http://site.example/{name}</link>"
    "<pubDate>{day} Nov 2026 10:00:00 GMT</pubDate><description>Otter news {name}.</description></item>"
)
SETTINGS = """
[connectors.news]
use = "rss"
paths = ["feed.xml"]
[providers.lib]
use = "sqlite"
path = "lib.db"
embedder = ""
[ingest.news]
from = "news"
to = "lib"
transforms = ["chunk"]
"""


def feed(at: Path, *names: str) -> Path:
    items = "".join(ITEM.format(name=name, day=f"{day:02}") for day, name in enumerate(names, 1))
    (at / "feed.xml").write_text(FEED.format(items=items))
    (at / "settings.toml").write_text(SETTINGS)
    return at / "settings.toml"


async def stored(at: Path) -> list[str]:
    store = Sqlite(path=str(at / "lib.db"), embedder=None)
    await store.open()
    ids = sorted(await store.fingerprints())
    await store.aclose()
    return ids


async def test_items_are_documents_and_stay_when_they_leave_the_feed(tmp_path: Path) -> None:
    path = feed(tmp_path, "a", "b", "c")
    assert (await run(path))["news"].added == 3
    feed(tmp_path, "c", "d")
    report = (await run(path))["news"]
    assert (report.added, report.deleted, report.skipped) == (1, 0, [])
    assert await stored(tmp_path) == ["news:a", "news:b", "news:c", "news:d"]
    assert (await run(path))["news"].documents == 0


async def test_items_of_one_address_with_titles_of_their_own_are_all_stored(tmp_path: Path) -> None:
    """A feed of changes links all of them to one page, and gives them no id."""
    path, page = feed(tmp_path), "<link>http://site.example/changes</link>"
    versions = "".join(
        f"<item><title>Version {n}</title>{page}<description>Otters {n}.</description></item>" for n in (3, 2)
    )
    again = f"<item><title>Version 3</title>{page}<description>Otters 3.</description></item>"
    (tmp_path / "feed.xml").write_text(FEED.format(items=versions + again))
    assert (await run(path))["news"].added == 2
    assert (await run(path))["news"].documents == 0
    (tmp_path / "feed.xml").write_text(FEED.format(items=again.replace("3", "4") + versions))
    await run(path)
    async with ContextRouter.from_toml(path) as router:
        found = {envelope.document.title for envelope in (await router.route("otters")).envelopes}
    assert found >= {"Version 4", "Version 3", "Version 2"}


async def test_an_ingested_item_says_its_day_its_address_and_that_strangers_wrote_it(tmp_path: Path) -> None:
    path = feed(tmp_path, "a")
    await run(path)
    async with ContextRouter.from_toml(path) as router:
        (envelope,) = (await router.route("otter news")).envelopes
    document = envelope.document
    assert document.content == "Otter news a."
    assert (document.url, document.untrusted) == ("http://site.example/a", True)
    assert document.metadata["dated_by"] == "feed"
    assert document.updated_at is not None
    assert document.updated_at.date().isoformat() == "2026-11-01"
    assert envelope.provenance[0].source == "lib"


async def test_a_feed_that_fails_is_a_problem_and_the_others_are_stored(tmp_path: Path) -> None:
    path = feed(tmp_path, "a")
    path.write_text(SETTINGS.replace('["feed.xml"]', '["feed.xml", "gone.xml"]'))
    report = (await run(path))["news"]
    assert report.added == 1
    assert [("gone.xml cannot be read" in reason) for _, reason in report.skipped] == [True]
