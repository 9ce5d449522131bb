"""The tutorial's plugin, loaded by its file as the router loads it."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from contextrouter.contracts import Connector
from contextrouter.errors import SourceError
from contextrouter.model import Period, Query

FILE = Path(__file__).parents[1] / "plugins" / "glossary.py"


def load() -> type[Connector]:
    spec = importlib.util.spec_from_file_location("_glossary_under_test", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Connector) and value.__module__ == module.__name__
    ]
    return found


@pytest.fixture
async def glossary() -> AsyncIterator[Connector]:
    source = load().example()
    await source.open()
    yield source
    await source.aclose()


async def titles(source: Connector, text: str, **more: object) -> list[str]:
    return [hit.document.title for hit in await source.search(Query(text=text, **more))]  # type: ignore[arg-type]  # fields of many types


def test_the_tutorial_keeps_its_promise_of_forty_lines() -> None:
    assert len([line for line in FILE.read_text().splitlines() if line.strip()]) <= 40


async def test_the_example_question_is_answered_with_the_definition_of_its_term(glossary: Connector) -> None:
    (hit,) = await glossary.search(Query(text="What books talk about machine learning for beginners?"))
    assert hit.document.title == "machine learning"
    assert hit.document.content.startswith("Programming by example")


async def test_terms_match_whole_words_in_any_case_and_in_the_plural_longest_first(
    glossary: Connector,
) -> None:
    assert await titles(glossary, "NEURAL NETWORKS and bm25, recall?") == ["neural network", "recall", "BM25"]
    assert await titles(glossary, "recalled precisions.") == ["precision"]


async def test_the_limit_holds_and_undated_terms_match_no_period(glossary: Connector) -> None:
    """A term without metadata matches no filter."""
    question = "recall precision embedding"
    assert await titles(glossary, question, limit=2) == ["embedding", "precision"]
    assert await titles(glossary, question, limit=0) == []
    assert await titles(glossary, question, period=Period(start=date(2026, 1, 1))) == []
    assert await titles(glossary, question, filters={"level": "easy"}) == []


async def test_json_is_read_as_toml_is(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text('{"c++": "a language"}')
    source = load()(path=str(tmp_path / "g.json"))  # type: ignore[call-arg]  # the class of the file takes a path
    await source.open()
    assert await titles(source, "Is C++ hard?") == ["c++"]


async def test_a_file_that_is_no_glossary_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("[term]\ndefinition = 1\n")
    source = load()(path=str(tmp_path / "g.toml"))  # type: ignore[call-arg]  # the class of the file takes a path
    with pytest.raises(SourceError, match='write `term = "definition"` lines'):
        await source.open()
