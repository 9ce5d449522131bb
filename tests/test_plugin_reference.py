"""The reference for plugin authors names every contract, ability, field and helper, with its type."""

from __future__ import annotations

import inspect
import re

import msgspec
import pytest
from support.example import ROOT

from contextrouter import contracts, testing
from contextrouter.contracts import KINDS, Plugin, Reranker
from contextrouter.model import (
    Clarification,
    Document,
    Entity,
    Envelope,
    Facet,
    Fact,
    Hit,
    Intent,
    Period,
    Provenance,
    Query,
    Request,
)
from contextrouter.runtime.contract_methods import methods_of, protocols

PAGE = (ROOT / "docs" / "plugin-reference.md").read_text("utf-8")
NOUNS = [
    Document,
    Hit,
    Query,
    Intent,
    Period,
    Clarification,
    Request,
    Fact,
    Entity,
    Facet,
    Envelope,
    Provenance,
]
STRUCTS = [
    *NOUNS,
    contracts.Completion,
    contracts.Writing,
    contracts.Entry,
    contracts.TermStatistics,
    contracts.InterpreterContext,
    contracts.StageContext,
]


def type_words(annotation: object) -> str:
    return re.sub(r"\s*\|\s*None\b", " or None", str(annotation)).replace(" | ", " or ")


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_has_a_row_with_its_type_and_default(struct: type[msgspec.Struct]):
    section = PAGE.partition(f"\n### {struct.__name__}\n")[2].partition("\n### ")[0]
    rows = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| `")}
    annotations = inspect.get_annotations(struct)
    fields = msgspec.structs.fields(struct)
    assert list(rows) == [field.name for field in fields]
    for field in fields:
        assert f"| `{type_words(annotations[field.name])}` |" in rows[field.name]
        assert ("| required |" in rows[field.name]) == field.required


def test_every_method_of_a_contract_and_an_ability_is_there():
    for contract in (*KINDS.values(), Plugin, Reranker):
        assert [name for name in methods_of(contract) if f"`{name}(" not in PAGE] == [], contract
    rows = {
        protocol: [line for line in PAGE.splitlines() if line.startswith(f"| `{protocol.__name__}` |")]
        for protocol in protocols()
    }
    absent = [
        f"{protocol.__name__}.{name}"
        for protocol, lines in rows.items()
        for name in methods_of(protocol)
        if f"`{name}(" not in "".join(lines)
    ]
    assert absent == []


def test_every_attribute_of_a_contract_is_there():
    names = {
        name
        for contract in (*KINDS.values(), contracts.Source, Reranker)
        for name in inspect.get_annotations(contract)
    }
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []


def test_every_helper_is_there():
    assert [name for name in testing.__all__ if not re.search(rf"`{name}[(`]", PAGE)] == []


def test_the_version_of_the_contracts_is_the_one_on_the_page():
    assert f'`contextrouter.contracts.VERSION` is `"{contracts.VERSION}"`' in PAGE
