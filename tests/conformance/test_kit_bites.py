"""The kit bites: a plugin broken on purpose breaks exactly the law it should, and every law has such a
plugin.
"""

from __future__ import annotations

import broken_common
import broken_facts
import broken_heavy
import broken_methods
import broken_sources
import broken_stores
import broken_texts
import pytest
from breaking import BROKEN

from contextrouter.contracts import Plugin
from contextrouter.testing import (
    LAWS,
    Adding,
    Facts,
    Fixed,
    Legs,
    Lines,
    Reversing,
    judge,
    laws_of,
    subject_of,
)

assert broken_common.Shelf in broken_heavy.Heavy.__mro__
assert broken_common.Shelf in broken_methods.Plain.__mro__
OBEYING = (
    *broken_sources.OBEYING,
    *broken_stores.OBEYING,
    *broken_facts.OBEYING,
    *broken_texts.OBEYING,
    Adding,
    Facts,
    Fixed,
    Legs,
    Lines,
    Reversing,
)
CASES = [(law, cls) for law, classes in BROKEN.items() for cls in classes]


def broken_laws(cls: type[Plugin]) -> dict[str, str]:
    """The laws a class breaks, with what is said about it; each is judged, whatever the others say. Behind a
    broken gate nothing can be judged.
    """
    subject, broken = subject_of(cls), dict[str, str]()
    for law in laws_of(cls):
        finding = judge(subject, law)
        if finding.status == "broken":
            broken[law.name] = finding.why
            if law.gate:
                break
    return broken


@pytest.mark.parametrize("cls", OBEYING, ids=lambda cls: cls.__name__)
def test_an_obeying_plugin_breaks_no_law(cls: type[Plugin]) -> None:
    assert broken_laws(cls) == {}


@pytest.mark.parametrize(("law", "cls"), CASES, ids=[f"{law}-{cls.__name__}" for law, cls in CASES])
def test_a_plugin_broken_on_purpose_breaks_exactly_its_law(law: str, cls: type[Plugin]) -> None:
    found = broken_laws(cls)
    assert set(found) == {law}, found
    assert found[law]


def test_every_law_has_a_plugin_that_breaks_it() -> None:
    every = {law.name for laws in LAWS.values() for law in laws}
    assert every - BROKEN.keys() == set()
    assert BROKEN.keys() - every == set()


def test_every_law_is_a_sentence_and_has_a_name_of_its_own() -> None:
    for laws in LAWS.values():
        assert len({law.name for law in laws}) == len(laws)
        assert all(law.says.endswith(".") and len(law.says) > 20 for law in laws)
