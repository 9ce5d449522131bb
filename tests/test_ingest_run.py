"""Ingestion jobs of a settings file: names become plugins that are open, and a wrong name says what is
right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from contextrouter import Connector, ContextRouter, Document, Hit, IngestError, Query, Scope, SettingsError
from contextrouter.ingest import Leftover, Report, forget, leftovers, run

STORE = '[providers.store]\nuse = "sqlite"\npath = "s.db"\n'
TEXTS = {"moon.md": "# Moon\n\nThe moon raises the tides.\n", "mars.md": "# Mars\n\nMars is red with rust.\n"}


class Listing(Connector):
    """Lists two documents, and says whether it is open."""

    def __init__(self) -> None:
        self.state = "made"

    async def open(self) -> None:
        self.state = "open"

    async def aclose(self) -> None:
        self.state = "closed"

    async def search(self, query: Query) -> Sequence[Hit]:
        return []

    async def crawl(self) -> AsyncIterator[Document]:
        assert self.state == "open"
        for name in ("a", "b"):
            yield Document(id=name, content=f"text of {name}")


def write(folder: Path, text: str) -> Path:
    (folder / "settings.toml").write_text(text, "utf-8")
    (folder / "texts").mkdir(exist_ok=True)
    for name, content in TEXTS.items():
        (folder / "texts" / name).write_text(content, "utf-8")
    return folder / "settings.toml"


async def titles(path: Path, question: str) -> list[str]:
    async with ContextRouter.from_toml(path) as router:
        context = await router.route(question, legs=["text"])
    return [envelope.document.title for envelope in context.envelopes]


async def test_a_path_is_relative_to_the_settings_file_and_labels_come_from_the_job(tmp_path: Path):
    path = write(
        tmp_path,
        STORE + '[ingest.all]\nfrom = "texts"\nto = "store"\nkind = "book"\nsensitivity = "internal"\n',
    )
    reports = await run(path)
    assert (reports["all"].documents, reports["all"].skipped) == (2, [])
    async with ContextRouter.from_toml(path) as router:
        document = (await router.route("tides of the moon")).envelopes[0].document
    assert (document.title, document.kind, document.sensitivity) == ("Moon", "book", "internal")


async def test_a_job_may_name_a_connector_even_a_disabled_one(tmp_path: Path):
    table = '[connectors.texts]\nuse = "files"\npath = "texts"\nenabled = false\n'
    path = write(tmp_path, STORE + table + '[ingest.all]\nfrom = "texts"\nto = "store"\n')
    assert (await run(path))["all"].documents == 2
    assert await titles(path, "rust") == ["Mars"]


async def test_a_connector_made_by_hand_is_open_while_it_is_read():
    """The router closes it."""
    listing = Listing()
    settings = {
        "providers": {"memory": {}},
        "ingest": {"all": {"from": "mine", "to": "memory", "transforms": []}},
    }
    async with ContextRouter(settings, connectors={"mine": listing}) as router:
        assert (await run(router))["all"].documents == 2
        assert [e.document.id for e in (await router.route("text of b")).envelopes][:1] == ["all:b#0"]
        assert listing.state == "open"
    assert listing.state == "closed"


async def test_only_the_jobs_named_run_and_an_unknown_one_is_refused(tmp_path: Path):
    jobs = (
        '[ingest.one]\nfrom = "texts/moon.md"\nto = "store"\n[ingest.two]\nfrom = "texts/mars.md"\nto ='
        ' "store"\n'
    )
    path = write(tmp_path, STORE + jobs)
    assert list(await run(path, ["two"])) == ["two"]
    with pytest.raises(SettingsError, match=r"Ingestion job 'tow' is not defined\. Did you mean 'two'\?"):
        await run(path, ["tow"])


async def test_rebuilding_some_jobs_keeps_what_the_others_stored(tmp_path: Path):
    jobs = (
        '[ingest.one]\nfrom = "texts/moon.md"\nto = "store"\n[ingest.two]\nfrom = "texts/mars.md"\nto ='
        ' "store"\n'
    )
    path = write(tmp_path, STORE + jobs)
    await run(path)
    assert (await run(path, ["one"], rebuild=True))["one"].documents == 1
    assert await titles(path, "rust") == ["Mars"]


async def test_rebuilding_all_jobs_lets_another_embedder_fill_the_store(tmp_path: Path):
    path = write(tmp_path, STORE + '[ingest.all]\nfrom = "texts"\nto = "store"\n')
    (tmp_path / "plugins").mkdir()
    lines = [
        "from contextrouter import Embedder",
        "class Letters(Embedder):",
        "    'Counts letters.'",
        "    dimensions = 2",
    ]
    lines += ["    model = 'letters'", "    async def embed(self, texts, *, query=False):"]
    lines += ["        return [[text.count('m') + 0.1, text.count('r') + 0.1] for text in texts]"]
    (tmp_path / "plugins" / "letters.py").write_text("\n".join(lines) + "\n")
    await run(path)
    other = (
        STORE.replace("path", 'embedder = "letters"\npath')
        + '[plugins]\npaths = ["plugins"]\n[embedders.letters]\n'
    )
    write(tmp_path, other + '[ingest.all]\nfrom = "texts"\nto = "store"\n')
    with pytest.raises(IngestError, match="--rebuild"):
        await run(path)
    assert (await run(path, rebuild=True))["all"].documents == 2
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("mmm", legs=["vector"])
    assert context.envelopes[0].document.title == "Moon"
    assert not context.degraded


async def test_progress_names_the_job(tmp_path: Path):
    seen: list[tuple[str, int]] = []

    def progress(name: str, report: Report) -> None:
        seen.append((name, report.documents))

    await run(write(tmp_path, STORE + '[ingest.all]\nfrom = "texts"\nto = "store"\n'), progress=progress)
    assert seen[-1] == ("all", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STORE, "No ingestion job is defined"),
        (STORE + '[ingest.all]\nfrom = "txets"\nto = "store"\n', "'txets' is neither a path"),
        (
            '[providers.memory]\n[ingest.all]\nfrom = "memory"\nto = "memory"\n',
            "'memory' cannot list its documents",
        ),
        (
            '[plugins]\npaths = ["p"]\n[providers.fixed]\n[ingest.all]\nfrom = "texts"\nto = "fixed"\n',
            "provider 'fixed' cannot be filled",
        ),
        (
            STORE.replace("path", 'embedder = "e5"\npath') + '[ingest.all]\nfrom = "texts"\nto = "store"\n',
            "'e5' is no defined embedder",
        ),
    ],
)
async def test_what_does_not_fit_is_said_with_its_place(tmp_path: Path, text: str, said: str):
    (tmp_path / "p").mkdir()
    fixed = "from contextrouter import Provider\nclass Fixed(Provider):\n    async def search(self, query):\n"
    (tmp_path / "p" / "fixed.py").write_text(fixed + "        return []\n")
    with pytest.raises(SettingsError) as caught:
        await run(write(tmp_path, text))
    assert said in str(caught.value)


def jobs(*names: str, tenant: str = "", to: str = "store") -> str:
    label = f'tenant = "{tenant}"\n' if tenant else ""
    return "".join(f'[ingest.{name}]\nfrom = "texts"\nto = "{to}"\n{label}' for name in names)


async def test_a_job_given_another_tenant_shows_the_old_one_nothing_any_more(tmp_path: Path):
    await run(write(tmp_path, STORE + jobs("all", tenant="acme")))
    path = write(tmp_path, STORE + jobs("all", tenant="globex"))
    assert (await run(path))["all"].deleted == 2
    async with ContextRouter.from_toml(path) as router:
        found = [
            len((await router.route("tides", scope=Scope(tenant=name))).envelopes)
            for name in ("acme", "globex")
        ]
    assert found == [0, 2]


async def test_what_a_renamed_job_left_is_named_and_removed_on_request_only(tmp_path: Path):
    await run(write(tmp_path, STORE + jobs("old", tenant="acme") + jobs("kept")))
    path = write(tmp_path, STORE + jobs("new", "kept"))
    await run(path)
    left = [Leftover(store="store", origin="old", documents=2)]
    assert await leftovers(path) == left
    for wrong, said in (("odl", "Did you mean 'old'"), ("kept", "is kept up to date by the job 'kept'")):
        with pytest.raises(SettingsError, match=said):
            await forget(path, ["old", wrong])
    assert await forget(path, ["old"], dry_run=True) == await leftovers(path) == left
    assert await forget(path, ["old"]) == left
    assert await leftovers(path) == []
    assert await titles(path, "tides") == ["Moon", "Moon"]  # one of "new", one of "kept": two ids


async def test_a_job_given_another_store_leaves_what_is_in_the_first(tmp_path: Path):
    two = STORE + STORE.replace("providers.store", "providers.second").replace("s.db", "t.db")
    await run(write(tmp_path, two + jobs("all")))
    path = write(tmp_path, two + jobs("all", to="second"))
    await run(path)
    assert await forget(path, ["all"]) == [Leftover(store="store", origin="all", documents=2)]
    assert (await run(path))["all"].unchanged == 2


async def test_documents_put_in_by_hand_are_nobody_s_leftovers():
    documents = [{"id": "by:hand", "content": "The moon."}]
    assert await leftovers(ContextRouter({"providers": {"memory": {"documents": documents}}})) == []
