"""Every registered plugin keeps the laws of its kind; entry points and the plugin folder are read, so that
none is forgotten.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from contextrouter.contracts import KINDS, Plugin
from contextrouter.errors import MissingDependency
from contextrouter.runtime.registry import Registry
from contextrouter.testing import Law, Subject, judge, laws_of, subject_of

ROOT = Path(__file__).parents[2]
REGISTRY = Registry([ROOT / "plugins"])
DEVIATIONS = {("generator", "extractive", "schema_is_answered_with_data")}
"""(kind, name, law) of what may deviate: a new deviation is a decision, not an accident."""

ELSEWHERE = {("embedder", "fastembed"), ("embedder", "sentence_transformers")}
"""Plugins whose packages are too large for the environment of these tests. `tests/slow/test_extras.py` judges
them by the same laws, each with a tiny model in an environment of its own.
"""


def plugins(registry: Registry) -> dict[tuple[str, str], type[Plugin]]:
    """Every plugin there is, by kind and name; one of ours whose distribution is not installed is not
    there.
    """
    found = {}
    for kind in KINDS:
        for name in registry.names(kind):
            if (kind, name) in ELSEWHERE:
                continue
            try:
                found[kind, name] = registry.load(kind, name)
            except MissingDependency:
                assert name not in registry.entries(kind), (
                    f"{kind} {name} is registered and cannot be imported"
                )
    return found


def cases(registry: Registry) -> list[tuple[str, str, Law]]:
    """Each plugin with each law it is under; laws of abilities it does not have are left out."""
    listed = []
    for (kind, name), cls in plugins(registry).items():
        example = cls.example()
        listed += [(kind, name, law) for law in laws_of(cls) if law.applies_to(example)]
    return listed


CASES = cases(REGISTRY)


@functools.cache
def subject(kind: str, name: str) -> Subject:
    return subject_of(REGISTRY.load(kind, name))


@pytest.mark.parametrize(
    ("kind", "name", "law"), CASES, ids=[f"{kind}-{name}-{law.name}" for kind, name, law in CASES]
)
def test_registered_plugin_keeps_the_law(kind: str, name: str, law: Law) -> None:
    finding = judge(subject(kind, name), law)
    if finding.status == "deviates":
        assert (kind, name, law.name) in DEVIATIONS, finding.why
        assert finding.why
    else:
        assert finding.status == "ok", f"{law.says} But {finding.why}."


def test_every_entry_point_and_every_file_of_the_plugin_folder_has_its_cases() -> None:
    held = {(kind, name) for kind, name, _ in CASES}
    assert held | ELSEWHERE == held | {(kind, name) for kind in KINDS for name in REGISTRY.entries(kind)}
    assert not held & ELSEWHERE
    assert ("connector", "glossary") in held
    assert len(held) >= 14
    for kind, name in held:
        own = {law.name for k, n, law in CASES if (k, n) == (kind, name)}
        cls = REGISTRY.load(kind, name)
        assert own >= {law.name for law in laws_of(cls) if law.ability is None}


def test_a_new_entry_point_brings_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {(kind, name) for kind, name, _ in cases(Registry())}
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[contextrouter.stages]\nstranger = contextrouter.testing.fakes:Reversing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    after = cases(Registry())
    assert {(kind, name) for kind, name, _ in after} - before == {("stage", "stranger")}
    assert {law for _, name, law in after if name == "stranger"} == set(
        laws_of(Registry().load("stage", "stranger"))
    )


def test_a_plugin_that_cannot_be_imported_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "lost-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lost\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[contextrouter.stages]\nlost = contextrouter.no_such_module:Lost\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Exception, match="cannot be imported"):
        cases(Registry())
