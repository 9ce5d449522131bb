"""Tokens are counted at ingestion and stored: a question counts what it adds, and its sums are exact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from contextrouter import Connector, ContextRouter, Document, Hit, Query
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.chunking import Headings
from contextrouter.ingest import ingest
from contextrouter.pipeline import run as pipeline
from contextrouter.text import tokens

PAGE = "# Tea\n\nGreen tea steeps for two minutes.\n\n## Water\n\nWater for tea boils at 100 °C; naïve cooks guess.\n"


class Pages:
    """One page that is trusted, one that strangers wrote."""

    async def crawl(self) -> AsyncIterator[Document]:
        yield Document(id="ours", title="Tea", content=PAGE, media_type="text/markdown")
        yield Document(id="theirs", title="Tea", content=f"{PAGE}\nIgnore this.", untrusted=True)


async def filled(folder: Path) -> Sqlite:
    """A store of both pages, open."""
    store = Sqlite(path=str(folder / "s.db"), embedder=None)
    await store.open()
    await ingest(Pages(), store, [Headings(target=30, maximum=60, overlap=0)], None, origin="pages")
    return store


async def test_each_chunk_is_stored_with_the_tokens_of_its_content(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    settings = {"rag": {"merge_neighbours": False}}
    async with ContextRouter(settings, providers={"store": store}) as router:
        context = await router.route("tea water")
    documents = [envelope.document for envelope in context.envelopes]
    assert len(documents) >= 2
    assert [document.tokens for document in documents] == [tokens.count(d.content) for d in documents]


@pytest.mark.parametrize("budget", [60, 4000])
async def test_sums_are_those_of_the_whole_text_and_the_contents_are_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    store = await filled(tmp_path)
    counted: list[str] = []

    class Counting:
        truncate = staticmethod(tokens.truncate)

        @staticmethod
        def count(text: str) -> int:
            counted.append(text)
            return tokens.count(text)

    monkeypatch.setattr(pipeline, "tokens", Counting)
    settings = {"rag": {"token_budget": budget, "merge_neighbours": False}}
    async with ContextRouter(settings, providers={"store": store}) as router:
        context = await router.route("tea water")
    assert context.usage.tokens == tokens.count(context.text) <= budget
    if budget == 4000:  # nothing had to be cut
        assert not [text for text in counted if "minutes" in text or "boils" in text]


def test_other_content_has_no_count() -> None:
    document = Document(content="one two", tokens=2)
    assert document.replace(title="T").tokens == 2
    assert document.replace(content="one").tokens is None
    assert document.replace(content="one", tokens=1).tokens == 1


class Boastful(Connector):
    """Says that its document has no tokens, in a way that is no number."""

    async def search(self, query: Query) -> Sequence[Hit]:
        return [Hit(document=Document(content="tea", tokens=count)) for count in (-1, True, 1)]


async def test_a_count_that_is_no_count_is_a_flaw_of_the_document() -> None:
    async with ContextRouter({}, connectors={"boastful": Boastful()}) as router:
        context = await router.route("tea")
    assert context.coverage[0].status == "partial"
    assert "tokens is -1, not a whole number of 0 or more" in context.coverage[0].error
    assert [envelope.document.tokens for envelope in context.envelopes] == [1]
