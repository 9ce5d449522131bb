"""Stemming: the stems of PyStemmer, which is in C, are those of snowballstemmer, and of no other version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import Stemmer

from contextrouter.text import stemming
from contextrouter.text.stemming import ALGORITHMS, compiled_stemmer, python_stemmer, stem

BEGINNINGS = (
    "",
    "a",
    "run",
    "beaut",
    "gener",
    "skrif",
    "prób",
    "мор",
    "θαλασσ",
    "بحر",
    "समुद्र",
    "கடல்",
    "ծով",
    "ים",
)


def suffixes(stemmer: Any) -> set[str]:
    """The endings that the tables of a stemmer in Python name."""
    tables = [value for value in vars(type(stemmer)).values() if isinstance(value, (list, tuple))]
    return {each.s for table in tables for each in table if hasattr(each, "s")}


@pytest.fixture
def fresh() -> Iterator[None]:
    stemming._compiled.cache_clear()
    yield
    stemming._compiled.cache_clear()


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS.values())))
def test_stems_in_c_are_those_in_python(algorithm: str) -> None:
    """Words are made of beginnings in many scripts, and each ending that the algorithm knows."""
    ours, theirs = compiled_stemmer(algorithm), python_stemmer(algorithm)
    assert isinstance(ours, Stemmer.Stemmer)
    words = [beginning + ending for ending in suffixes(theirs) for beginning in BEGINNINGS]
    assert len(words) > 100
    assert [ours.stemWord(word) for word in words] == [theirs.stemWord(word) for word in words]


@pytest.mark.parametrize("version", ["2.2.0", "99.1.0"])
def test_stems_of_another_version_are_not_taken(
    version: str, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    monkeypatch.setattr(Stemmer, "version", lambda: version)
    assert compiled_stemmer("english") is None
    stem.cache_clear()
    assert stem("connections") == "connect"


def test_without_pystemmer_stems_are_the_same(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setitem(__import__("sys").modules, "Stemmer", None)
    assert compiled_stemmer("german") is None
    stem.cache_clear()
    assert [stem("häuser", "de"), stem("running")] == ["haus", "run"]
