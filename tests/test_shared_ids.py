"""Ids that stores share: jobs with one `origin`, and the stage `hydrate` that fetches from another store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from contextrouter import Context, ContextRouter, Document, Provider, Query, Scope, SettingsError
from contextrouter.builtin.stages.hydrate import Hydrate
from contextrouter.ingest import Leftover, forget, leftovers, run
from contextrouter.testing import Fixed, doc, envelope, stage_context

SNIPPET = '''
from contextrouter import Transform

class Snippet(Transform):
    """Keeps the first words of a chunk."""

    async def transform(self, document):
        return [document.replace(content=" ".join(document.content.split()[:6]))]
'''
TEXTS = {
    "moon.md": "# Moon\n\nThe tides of the sea follow the moon, twice a day, everywhere.\n",
    "mars.md": "# Mars\n\nIt has no tides of water, but the rust of its sand is red.\n",
    "jam.md": "# Jam\n\nNo tides are needed to keep fruit with sugar, for a year, at all.\n",
}


def write(folder: Path, *, origins: Sequence[str] = ("lessons", "lessons"), texts: str = "lessons") -> Path:
    """Settings with two stores that are filled from one folder: `search` with snippets, `texts` with texts."""
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins" / "snippet.py").write_text(SNIPPET, "utf-8")
    (folder / "lessons").mkdir(exist_ok=True)
    for name, content in TEXTS.items():
        (folder / "lessons" / name).write_text(content, "utf-8")
    keys = [f'origin = "{origin}"' if origin else "" for origin in origins]
    path = folder / "settings.toml"
    path.write_text(
        f"""
[plugins]
paths = ["plugins"]
[rag]
stages = ["full"]
interpreters = []
[providers.search]
use = "sqlite"
path = "search.db"
legs = ["text"]
[providers.texts]
use = "sqlite"
path = "texts.db"
[stages.full]
use = "hydrate"
source = "texts"
[ingest.candidates]
from = "lessons"
to = "search"
transforms = ["chunk", "snippet"]
{keys[0]}
[ingest.whole]
from = "{texts}"
to = "texts"
transforms = ["chunk"]
{keys[1]}
""",
        "utf-8",
    )
    return path


async def ask(path: Path) -> tuple[Context, str]:
    """Ask the store of snippets only; return the answer and the note of the stage."""
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("tides", sources=["search"])
    return context, next(step.note for step in context.trace.steps if step.name == "full")


def ends(context: Context) -> list[str]:
    return sorted(e.document.content.split()[-1] for e in context.envelopes)


@pytest.mark.case("T10")
async def test_what_one_store_found_has_its_text_from_another_store_with_the_same_origin(tmp_path: Path):
    path = write(tmp_path)
    reports = await run(path)
    assert [report.documents for report in reports.values()] == [3, 3]
    context, note = await ask(path)
    assert ends(context) == ["all.", "everywhere.", "red."]
    assert note == ""
    assert {e.document.parent for e in context.envelopes} == {f"lessons:{name}" for name in TEXTS}


@pytest.mark.case("T10")
async def test_with_different_origins_nothing_is_filled_and_the_trace_says_so(tmp_path: Path):
    path = write(tmp_path, origins=("", ""))
    await run(path)
    context, note = await ask(path)
    assert len(context.envelopes) == 3
    assert not {"all.", "everywhere.", "red."} & set(ends(context))
    assert note == "0 of 3 filled"
    assert not context.degraded


@pytest.mark.case("T10")
async def test_what_the_other_store_lacks_is_counted(tmp_path: Path):
    path = write(tmp_path, texts="some")
    (tmp_path / "some").mkdir()
    for name in ("moon.md", "jam.md"):
        (tmp_path / "some" / name).write_text(TEXTS[name], "utf-8")
    await run(path)
    _, note = await ask(path)
    assert note == "2 of 3 filled"


async def test_both_stores_have_equal_ids_and_a_second_run_changes_nothing(tmp_path: Path):
    path = write(tmp_path)
    await run(path)
    async with ContextRouter.from_toml(path) as router:
        search, texts = (router.instances.sources[name] for name in ("search", "texts"))
        assert isinstance(search, Provider)
        assert isinstance(texts, Provider)
        ids = [
            sorted(hit.document.id for hit in await store.search(Query(text="tides", leg="text", limit=9)))
            for store in (search, texts)
        ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 3
    assert [report.unchanged for report in (await run(path)).values()] == [3, 3]


async def test_a_new_origin_leaves_the_documents_of_the_old_one_to_be_forgotten(tmp_path: Path):
    await run(write(tmp_path, origins=("", "")))
    path = write(tmp_path, origins=("lessons", "lessons"))
    await run(path)
    left = [
        Leftover(store="search", origin="candidates", documents=3),
        Leftover(store="texts", origin="whole", documents=3),
    ]
    assert await leftovers(path) == left
    with pytest.raises(SettingsError, match="kept up to date by the job 'candidates'"):
        await forget(path, ["lessons"])
    assert await forget(path, ["candidates", "whole"]) == left
    assert await leftovers(path) == []
    assert len((await ask(path))[0].envelopes) == 3


@pytest.mark.parametrize(
    ("origins", "key"), [(("same", "same"), "ingest.b.origin"), (("b", None), "ingest.b.to")]
)
def test_two_jobs_of_one_origin_and_one_store_are_refused(origins: Sequence[str | None], key: str):
    jobs = {
        name: {"from": "x", "to": "s", **({"origin": origin} if origin else {})}
        for name, origin in zip("ab", origins, strict=True)
    }
    table = {"providers": {"s": {"use": "memory"}}, "ingest": jobs}
    with pytest.raises(SettingsError, match=rf"{key}: the job 'a' fills 's' with the origin"):
        ContextRouter(table)


@pytest.mark.parametrize("origin", ["", "a:b", "a b", "x" * 65, "é"])
def test_an_origin_that_is_no_name_is_refused(origin: str):
    table = {
        "providers": {"s": {"use": "memory"}},
        "ingest": {"a": {"from": "x", "to": "s", "origin": origin}},
    }
    with pytest.raises(SettingsError, match=r"ingest\.a\.origin"):
        ContextRouter(table)


class Texts(Fixed):
    """A source with one text by id."""

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        return [doc(id, "the whole text") for id in ids if id == "a"]


async def test_hydrate_leaves_no_note_where_all_were_filled_or_none_came():
    notes: list[str] = []
    context = stage_context(sources={"texts": Texts([])}, notes=notes)
    stage = Hydrate(source="texts")
    await stage.apply([envelope(doc("a", "short"))], context)
    await stage.apply([], context)
    assert notes == []
    await stage.apply([envelope(doc("a", "short")), envelope(doc("b", "short"), 2)], context)
    assert notes == ["1 of 2 filled"]
