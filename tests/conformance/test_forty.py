"""Forty plugins broken on purpose, five of each kind: each breaks the law that names its fault."""

from __future__ import annotations

import importlib.util
import uuid
from collections import Counter
from pathlib import Path
from string import Template
from typing import NamedTuple

import pytest
import tomli

from contextrouter.cli.plugins.new import write_package
from contextrouter.contracts import KINDS, Plugin
from contextrouter.testing import judge, laws_of, subject_of
from contextrouter.testing.verdict import broken_gate

FIXTURE = Path(__file__).parents[1] / "fixtures" / "broken_plugins.toml"


class Fault(NamedTuple):
    """A kind of plugin, a mistake, the law that names it, and the changes of the code that make it."""

    kind: str
    fault: str
    law: str
    changes: list[tuple[str, str]]


FAULTS = [Fault(**row) for row in tomli.loads(FIXTURE.read_text("utf-8"))["plugin"]]


def load_broken(fault: Fault, folder: Path) -> type[Plugin]:
    """Write the package of a new plugin, make the mistake in it, and return its class."""
    write_package(fault.kind, "mine", folder)
    path = folder / "contextrouter_mine" / "plugin.py"
    text = path.read_text("utf-8")
    for old, new in fault.changes:
        old, new = (Template(part).safe_substitute(name="mine") for part in (old, new))
        assert old in text, f"{fault.kind}: {old!r}"
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(f"broken_{uuid.uuid4().hex}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cls: type[Plugin] = module.Mine
    return cls


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.kind}: {fault.fault}" for fault in FAULTS])
def test_a_broken_plugin_breaks_the_law_that_names_its_fault(fault: Fault, tmp_path: Path):
    """A fault that leaves the plugin at work passes all gates; another is named by a gate."""
    cls = load_broken(fault, tmp_path)
    (law,) = [law for law in laws_of(cls) if law.name == fault.law]
    finding = judge(subject_of(cls), law)
    assert (finding.status, bool(finding.why)) == ("broken", True)
    gate = broken_gate(subject_of(cls))
    assert (gate and gate.law) == (law.name if law.gate else None), gate


def test_there_are_five_of_each_kind():
    assert Counter(fault.kind for fault in FAULTS) == dict.fromkeys(KINDS, 5)
    assert len({(fault.kind, fault.fault) for fault in FAULTS}) == 40
