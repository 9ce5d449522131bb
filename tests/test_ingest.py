"""Ingestion: what is new goes in, what is gone goes out, what is unchanged costs nothing, and nothing is lost
on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.contracts import Embedder, Entry, SupportsUpsert, Transform
from contextrouter.errors import IngestError
from contextrouter.ingest import Report, ingest
from contextrouter.ingest.preparation import apply_labels, build_entry, configuration, fingerprint, leg_text
from contextrouter.model import Document, Fact, Query, Vector


class Shelf:
    """A source that lists the documents it is given; an exception among them is where it breaks off."""

    def __init__(self, *documents: Document | Exception) -> None:
        self.documents = documents

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            if isinstance(document, Exception):
                raise document
            yield document


class Counting(Embedder):
    """Three numbers of a text, and a record of every call."""

    dimensions = 3
    model = "counting-1"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        self.calls.append(list(texts))
        return [(float(len(text)), 1.0, 0.0) for text in texts]


class Lines(Transform):
    """One chunk a line."""

    def __init__(self, *, prefix: str = "") -> None:
        self.prefix = prefix

    async def transform(self, document: Document) -> Sequence[Document]:
        return [document.replace(content=self.prefix + line) for line in document.content.splitlines()]


class Each(Transform):
    """Whatever a function makes of a document."""

    def __init__(self, function: Callable[[Document], Document]) -> None:
        self.function = function

    async def transform(self, document: Document) -> Sequence[Document]:
        return [self.function(document)]


class Recording(Memory):
    """A memory store that remembers what was put into it, call by call."""

    def __init__(self, *, embedder: str | None = None) -> None:
        super().__init__(embedder=embedder)
        self.calls: list[list[Entry]] = []
        self.facts: dict[str, Sequence[Fact]] = {}

    async def upsert(self, entries: Sequence[Entry]) -> None:
        self.calls.append(list(entries))
        self.facts.update((entry.document.id, entry.facts) for entry in entries)
        await super().upsert(entries)

    def chunks(self) -> dict[str, list[Document]]:
        return {entry.document.id: list(entry.chunks) for call in self.calls for entry in call}


def pages(*contents: str, start: int = 0) -> list[Document]:
    return [Document(id=f"p{n}", title=f"Page {n}", content=text) for n, text in enumerate(contents, start)]


async def fill(
    store: SupportsUpsert,
    *documents: Document | Exception,
    transforms: Iterable[Transform] = (),
    embedder: Embedder | None = None,
    **more: Any,
) -> Report:
    return await ingest(Shelf(*documents), store, list(transforms), embedder, **{"origin": "shelf", **more})


# What is new, unchanged, changed, gone


@pytest.mark.case("ING-01")
async def test_a_second_run_over_several_batches_adds_and_removes_nothing() -> None:
    """Cleaning up inside the batch loop once removed the chunks of later batches and embedded them again on
    every run.
    """
    store, embedder = Recording(embedder="e"), Counting()
    (page,) = pages("a\nb\nc\nd")
    first = await fill(store, page, *pages("e\nf", start=1), transforms=[Lines()], embedder=embedder, batch=2)
    assert (first.documents, first.chunks, first.unchanged, first.deleted) == (2, 6, 0, 0)
    calls = len(embedder.calls)
    second = await fill(
        store, page, *pages("e\nf", start=1), transforms=[Lines()], embedder=embedder, batch=2
    )
    assert (second.documents, second.chunks, second.unchanged, second.deleted) == (0, 0, 2, 0)
    assert len(embedder.calls) == calls
    assert len(await store.search(Query(text="page", leg="text"))) == 6


@pytest.mark.case("ING-04")
async def test_every_chunk_of_a_document_is_stored_not_only_the_last() -> None:
    """Chunks that all carry their document's id get one each."""
    store = Recording()
    await fill(store, *pages("one\ntwo\nthree\nfour\nfive"), transforms=[Lines()])
    chunks = store.chunks()["shelf:p0"]
    assert [chunk.content for chunk in chunks] == ["one", "two", "three", "four", "five"]
    assert len({chunk.id for chunk in chunks}) == 5
    assert {chunk.parent for chunk in chunks} == {"shelf:p0"}
    assert len(await store.search(Query(text="one two three four five", leg="text"))) == 5


@pytest.mark.case("ING-05")
async def test_a_run_after_a_failed_one_adds_nothing_twice() -> None:
    store = Recording(embedder="e")

    class Fragile(Counting):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
            if len(self.calls) == 1:
                raise ConnectionError("gone")
            return await super().embed(texts, query=query)

    with pytest.raises(IngestError, match="gone"):
        await fill(store, *pages("one", "two", "three"), embedder=Fragile(), batch=1)
    report = await fill(store, *pages("one", "two", "three"), embedder=Counting(), batch=1)
    assert (report.documents, report.unchanged) == (2, 1)
    again = await fill(store, *pages("one", "two", "three"), embedder=Counting(), batch=1, rebuild=True)
    assert (again.documents, again.unchanged) == (3, 0)
    assert len(await store.search(Query(text="one two three", leg="text"))) == 3


async def test_a_changed_document_replaces_what_it_was_and_a_vanished_one_goes() -> None:
    store = Recording()
    await fill(store, *pages("one", "two", "three"))
    report = await fill(store, *pages("one", "zwei"))
    assert (report.documents, report.unchanged, report.deleted) == (1, 1, 1)
    found = [hit.document.content for hit in await store.search(Query(text="one two three zwei", leg="text"))]
    assert sorted(found) == ["one", "zwei"]


async def test_two_origins_fill_one_store_without_touching_each_other() -> None:
    store = Recording()
    await fill(store, *pages("one"), origin="a")
    await fill(store, *pages("two"), origin="a.b")
    await fill(store, *pages("three"), origin="b")
    report = await fill(store, origin="a", remove=True)
    assert report.deleted == 1
    assert sorted(await store.fingerprints()) == ["a.b:p0", "b:p0"]


async def test_nothing_is_removed_when_the_source_breaks_off_and_what_came_before_is_stored() -> None:
    store = Recording()
    await fill(store, *pages("one", "two"))
    with pytest.raises(IngestError, match="broke off after 1 documents, nothing was removed: gone"):
        await fill(store, *pages("eins"), OSError("gone"))
    assert sorted(await store.fingerprints()) == ["shelf:p0", "shelf:p1"]
    assert len(await store.search(Query(text="eins", leg="text"))) == 1


async def test_what_a_source_could_not_read_this_time_stays_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("zebra")
    (tmp_path / "b.md").write_text("giraffe")
    store, source = Recording(), Files(path=str(tmp_path), max_bytes=100)
    await source.open()
    await ingest(source, store, [], None, origin="f")
    (tmp_path / "a.md").write_text("zebra " * 100)
    report = await ingest(source, store, [], None, origin="f")
    assert (report.unchanged, report.deleted) == (1, 0)
    assert report.skipped == [("f", "a.md: 600 bytes are more than `max_bytes` = 100.")]
    (tmp_path / "a.md").unlink()
    assert (await ingest(source, store, [], None, origin="f")).deleted == 1
    await source.aclose()


async def test_documents_of_an_unreadable_folder_stay() -> None:
    """Documents of the same name elsewhere go."""

    class Unread(Shelf):
        problems: Sequence[str] = ()
        unread: Sequence[str] = ("sub/",)

    store = Recording()
    await fill(store, Document(id="sub/a", content="x"), Document(id="sub2", content="y"))
    assert (await ingest(Unread(), store, [], None, origin="shelf", remove=True)).deleted == 1
    assert list(await store.fingerprints()) == ["shelf:sub/a"]


async def test_a_file_that_was_only_touched_is_unchanged() -> None:
    store = Recording()
    (page,) = pages("one")
    await fill(store, page.replace(updated_at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert (await fill(store, page.replace(updated_at=datetime(2026, 2, 1, tzinfo=UTC)))).unchanged == 1


@pytest.mark.parametrize(
    "change",
    [
        {"content": "x"},
        {"title": "x"},
        {"url": "x"},
        {"kind": "book"},
        {"tenant": "t"},
        {"compartment": "c"},
        {"sensitivity": "internal"},
        {"labels": ("l",)},
        {"keywords": ("k",)},
        {"links": ("l",)},
        {"language": "de"},
        {"trust": "volatile"},
        {"metadata": {"a": 1}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_a_document_says_or_is_labelled_with_is_in_its_fingerprint(
    change: Mapping[str, Any],
) -> None:
    (page,) = pages("one")
    assert fingerprint(page, "") == fingerprint(page.replace(), "")
    assert fingerprint(page, "") != fingerprint(page.replace(**change), "")


def test_the_fingerprint_does_not_depend_on_the_order_of_metadata_or_of_a_set() -> None:
    (page,) = pages("one")
    one, two = {"a": 1, "b": {"x", "y", "z"}}, {"b": {"z", "y", "x"}, "a": 1}
    assert fingerprint(page.replace(metadata=one), "") == fingerprint(page.replace(metadata=two), "")


async def test_other_settings_of_a_transform_or_another_model_do_the_work_again() -> None:
    store, embedder = Recording(embedder="e"), Counting()
    await fill(store, *pages("one"), transforms=[Lines()], embedder=embedder)
    assert (
        await fill(store, *pages("one"), transforms=[Lines(prefix="> ")], embedder=embedder)
    ).documents == 1
    embedder.model = "counting-2"
    assert (
        await fill(store, *pages("one"), transforms=[Lines(prefix="> ")], embedder=embedder)
    ).documents == 1
    assert (
        await fill(store, *pages("one"), transforms=[Lines(prefix="> ")], embedder=embedder)
    ).unchanged == 1
    assert configuration([], embedder, ("vector",)) != configuration([], embedder, ("vector", "keywords"))
    assert (
        configuration([Lines()], None, ())
        == configuration([Lines()], embedder, ())
        != configuration([], None, ())
    )


# Embedding and batches


async def test_each_vector_leg_is_embedded_in_calls_of_at_most_a_batch() -> None:
    store, embedder = Recording(embedder="e"), Counting()
    page = Document(id="p", title="T", content="a\nb\nc", path=("H1", "H2"), keywords=("k1", "k2"))
    await fill(store, page, transforms=[Lines()], embedder=embedder, batch=2)
    head = "T\nH1 > H2\n"
    assert embedder.calls == [[head + "a", head + "b"], [head + "c"], ["k1, k2", "k1, k2"], ["k1, k2"]]
    ((entry,),) = store.calls
    assert entry.vectors["vector"] == [(float(len(head) + 1), 1.0, 0.0)] * 3


async def test_a_chunk_without_keywords_has_no_keywords_vector_and_entries_get_their_own_vectors() -> None:
    store = Recording(embedder="e")
    first, second = Document(id="a", content="x"), Document(id="b", content="yy\nzzz", keywords=("key",))
    await fill(store, first, second, transforms=[Lines()], embedder=Counting())
    one, two = store.calls[0]
    assert (one.vectors["vector"], one.vectors["keywords"]) == ([(1.0, 1.0, 0.0)], [None])
    assert two.vectors["vector"] == [(2.0, 1.0, 0.0), (3.0, 1.0, 0.0)]
    assert two.vectors["keywords"] == [(3.0, 1.0, 0.0)] * 2
    assert leg_text("keywords", first) is None


async def test_memory_is_bounded_by_the_batch_also_when_documents_have_no_chunks() -> None:
    store = Recording()
    await fill(store, *pages(*["a"] * 5), batch=2)
    assert [len(call) for call in store.calls] == [2, 2, 1]
    blank = Recording()
    emptied = Each(lambda document: document.replace(content=""))  # such as menus, of which nothing is left
    report = await fill(blank, *pages(*["menu"] * 5), transforms=[emptied], batch=2)
    assert [len(call) for call in blank.calls] == [2, 2, 1]
    assert (report.documents, report.chunks) == (5, 0)


async def test_a_dry_run_counts_what_it_would_do_and_does_nothing() -> None:
    store, embedder = Recording(embedder="e"), Counting()
    await fill(store, *pages("one", "two"), embedder=embedder)
    calls = len(embedder.calls)
    report = await fill(store, *pages("eins"), embedder=embedder, dry_run=True)
    assert (report.documents, report.chunks, report.deleted) == (1, 1, 1)
    assert (len(embedder.calls), len(store.calls)) == (calls, 1)
    assert sorted(await store.fingerprints()) == ["shelf:p0", "shelf:p1"]


async def test_progress_is_told_after_every_batch_and_at_the_end() -> None:
    told: list[int] = []
    report = await fill(
        Recording(), *pages("a", "b", "c"), batch=2, progress=lambda r: told.append(r.documents)
    )
    assert told == [2, 3, 3]
    assert report.seconds > 0


# Failures


async def test_one_document_that_fails_is_reported_and_keeps_what_is_stored_of_it() -> None:
    def refuse(document: Document) -> Document:
        if document.content == "bad":
            raise ValueError("cannot be cut")
        return document

    store = Recording()
    await fill(store, *pages("one", "two"), transforms=[Each(refuse)])
    report = await fill(store, *pages("bad", "zwei"), transforms=[Each(refuse)])
    assert report.skipped == [("shelf:p0", "ValueError: cannot be cut")]
    assert (report.documents, report.deleted) == (1, 0)
    assert len(await store.search(Query(text="one", leg="text"))) == 1


async def test_documents_without_an_id_or_listed_twice_are_reported() -> None:
    (page,) = pages("one")
    report = await fill(Recording(), page, page.replace(content="two"), Document(title="No id", content="x"))
    assert report.documents == 1
    assert report.skipped == [
        ("shelf:p0", "was listed twice; the first one was taken"),
        ("No id", "has no id"),
    ]


async def test_metadata_that_cannot_be_stored_is_one_documents_failure() -> None:
    report = await fill(Recording(), Document(id="a", content="x", metadata={"x": object()}), *pages("one"))
    assert report.documents == 1
    assert report.skipped == [("shelf:a", "TypeError: metadata holds a object, which cannot be stored")]


async def test_an_embedder_that_returns_too_few_vectors_ends_the_job() -> None:
    class Short(Counting):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
            return (await super().embed(texts))[1:]

    with pytest.raises(IngestError, match="returned 1 vectors for 2 texts"):
        await fill(Recording(embedder="e"), *pages("one", "two"), embedder=Short())


async def test_a_store_that_fails_ends_the_job_and_names_the_documents() -> None:
    class Full(Memory):
        async def upsert(self, entries: Sequence[Entry]) -> None:
            raise OSError("disk full")

    with pytest.raises(IngestError, match="'shelf:p0' to 'shelf:p1': disk full") as caught:
        await fill(Full(), *pages("one", "two"))
    assert caught.value.document == "shelf:p0"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"origin": ""}, "Origin ''"),
        ({"origin": "a:b"}, "Origin 'a:b'"),
        ({"batch": 0}, "Batch 0"),
        ({"labels": {"colour": "red"}}, "'colour' is not known"),
        ({"labels": {"sensitivity": "secret"}}, "public or internal or confidential or restricted"),
        ({"labels": {"tenant": ""}}, "give a text"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(more: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await fill(Recording(), **more)


# Facts and labels


async def test_facts_and_problems_leave_the_metadata_and_each_fact_is_kept_once() -> None:
    fact = Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman")

    def enrich(document: Document) -> Document:
        return document.replace(
            metadata={**document.metadata, "facts": [fact, "nonsense"], "problems": ["model was down"]}
        )

    store = Recording()
    report = await fill(store, *pages("one\ntwo"), transforms=[Lines(), Each(enrich)])
    assert store.facts == {"shelf:p0": (fact,)}
    assert report.facts == 1
    assert [chunk.metadata for chunk in store.chunks()["shelf:p0"]] == [{}, {}]
    assert report.skipped.count(("shelf:p0", "model was down")) == 2
    assert any("'nonsense' is no Fact" in reason for _, reason in report.skipped)


async def test_metadata_of_a_stranger_under_the_name_of_facts_is_reported_and_not_stored() -> None:
    entry, problems = await build_entry(
        Document(id="a", content="x", metadata={"facts": "many", "problems": "none"}), [], ""
    )
    assert (entry.facts, entry.document.metadata, entry.chunks[0].metadata) == ((), {}, {})
    assert problems == [
        "none",
        "fact 'many' is no Fact; the transform that made it has to return Fact objects.",
    ]


@pytest.mark.parametrize(
    ("own", "given", "made"),
    [
        ({}, {"sensitivity": "internal"}, {"sensitivity": "internal"}),
        ({"sensitivity": "public"}, {"sensitivity": "internal"}, {"sensitivity": "internal"}),
        ({"sensitivity": "restricted"}, {"sensitivity": "internal"}, {"sensitivity": "restricted"}),
        ({"sensitivity": "secret"}, {"sensitivity": "internal"}, {"sensitivity": "secret"}),
        ({"trust": "authoritative"}, {"trust": "volatile"}, {"trust": "volatile"}),
        ({"trust": "volatile"}, {"trust": "reference"}, {"trust": "volatile"}),
        ({}, {"tenant": "t", "compartment": "c"}, {"tenant": "t", "compartment": "c"}),
        ({"tenant": "own"}, {"compartment": "c"}, {"tenant": "own", "compartment": "c"}),
        ({"tenant": "*"}, {"tenant": "t"}, {"tenant": "t"}),
        ({"tenant": "*"}, {}, {"tenant": None}),
        ({}, {"tenant": "*"}, {"tenant": "*"}),
        ({"kind": "book"}, {"kind": "web"}, {"kind": "book"}),
        ({}, {"kind": "web"}, {"kind": "web"}),
    ],
)
def test_labels_fill_gaps_and_only_tighten(
    own: Mapping[str, Any], given: Mapping[str, str], made: Mapping[str, str]
) -> None:
    document = apply_labels(Document(content="x", **own), given)
    assert {name: getattr(document, name) for name in made} == made


@pytest.mark.parametrize("name", ["tenant", "compartment"])
def test_a_document_of_another_tenant_or_compartment_than_its_job_s_is_refused(name: str) -> None:
    with pytest.raises(IngestError, match=f"names the {name} 'own', the job 'other'"):
        apply_labels(Document(content="x", **{name: "own"}), {name: "other"})


async def test_a_chunk_is_never_labelled_looser_than_its_document() -> None:
    def loosen(document: Document) -> Document:
        return document.replace(tenant=None, compartment=None, sensitivity="public", trust=None)

    page = Document(
        id="a", content="x", tenant="t", compartment="c", sensitivity="restricted", trust="volatile"
    )
    entry, _ = await build_entry(page, [Each(loosen)], "")
    (chunk,) = entry.chunks
    assert (chunk.tenant, chunk.compartment, chunk.sensitivity, chunk.trust) == (
        "t",
        "c",
        "restricted",
        "volatile",
    )


async def test_tenants_are_kept_apart_in_what_is_unchanged_and_what_has_vanished() -> None:
    store = Recording()
    (page,) = pages("one")
    await fill(store, page, page.replace(tenant="t"))
    assert (len(await store.fingerprints()), len(await store.fingerprints("t"))) == (1, 1)
    report = await fill(store, page, Document(id="new", content="x", tenant="t"))
    assert (report.unchanged, report.documents, report.deleted) == (1, 1, 1)
    assert list(await store.fingerprints("t")) == ["shelf:new"]


async def test_a_job_given_another_tenant_takes_its_documents_out_from_under_the_old_one() -> None:
    store = Recording()
    (page,) = pages("one")
    for labels in ({"tenant": "acme"}, {}, {"tenant": "globex"}):
        await ingest(Shelf(page), store, [], None, labels=labels, origin="shelf")
        assert await store.tenants() == [labels.get("tenant")]
    await ingest(Shelf(page), store, [], None, labels={"tenant": "acme"}, origin="other")
    report = await ingest(Shelf(page), store, [], None, origin="shelf")
    assert (report.deleted, await store.tenants()) == (1, [None, "acme"])  # another origin's copies stay


async def test_what_could_not_be_read_stays_only_under_the_tenant_its_job_names() -> None:
    store = Recording()
    (page,) = pages("one")

    class Half(Shelf):
        problems, unread = ("one is not readable",), (page.id,)

    await ingest(Shelf(page), store, [], None, labels={"tenant": "acme"}, origin="shelf")
    assert (await ingest(Half(), store, [], None, labels={"tenant": "acme"}, origin="shelf")).deleted == 0
    assert (await ingest(Half(), store, [], None, labels={"tenant": "globex"}, origin="shelf")).deleted == 1


# The example library, into a real file


async def test_the_example_library_goes_into_a_file_and_answers_the_example_question(tmp_path: Path) -> None:
    source = Files(path=str(Path(__file__).parents[1] / "examples" / "library"))
    store = Sqlite(path=str(tmp_path / "library.db"))
    await source.open()
    await store.open()
    report = await ingest(source, store, [], None, origin="library")
    assert (report.documents, report.skipped) == (15, [])
    hits = await store.search(
        Query(text="What books talk about machine learning for beginners?", leg="text", limit=5)
    )
    assert "library:which-book-first.md" in [hit.document.parent for hit in hits]
    assert (await ingest(source, store, [], None, origin="library")).unchanged == 15
    await store.aclose()
    await source.aclose()


# What changed, and only that, is embedded


async def test_after_an_edit_only_the_chunks_that_changed_are_embedded(tmp_path: Path) -> None:
    store, embedder = Sqlite(path=str(tmp_path / "s.db"), embedder="default"), Counting()
    await store.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    text = "# A\none\n# B\ntwo two\n# C\nthree"
    first = [Document(id="a", content=text, media_type="text/markdown"), Document(id="b", content="other")]
    report = await fill(store, *first, transforms=[Chunk()], embedder=embedder)
    assert (report.documents, report.chunks, report.embedded) == (2, 4, 4)
    found = await store.search(Query(text="", leg="vector", vector=[13.0, 1.0, 0.0], limit=9))
    embedder.calls.clear()
    first[0] = first[0].replace(content=text.replace("two two", "two, edited"))
    report = await fill(store, *first, transforms=[Chunk()], embedder=embedder)
    assert (report.documents, report.chunks, report.embedded, report.unchanged) == (1, 3, 1, 1)
    assert embedder.calls == [["A\nB\n# B\ntwo, edited"]]
    again = await store.search(Query(text="", leg="vector", vector=[13.0, 1.0, 0.0], limit=9))
    kept = {hit.document.id: hit.score for hit in found if "two" not in hit.document.content}
    assert len(kept) == 3
    assert {hit.document.id: hit.score for hit in again if hit.document.id in kept} == pytest.approx(kept)
    await store.aclose()


async def test_vectors_of_another_model_are_not_taken_over(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "s.db"), embedder="default")
    await store.open()
    await store.embedded_by("counting-1", 3)
    await fill(store, *pages("one"), embedder=Counting())
    assert len(await store.embedded(["shelf:p0"], None, "counting-1")) == 1
    assert await store.embedded(["shelf:p0"], None, "counting-2") == []
    assert await store.embedded(["shelf:p0"], "t", "counting-1") == []
    report = await fill(store, *pages("one"), embedder=Counting(), rebuild=True)
    assert report.embedded == 1
    await store.aclose()
