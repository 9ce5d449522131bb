"""The check of the dependencies' licences lets no copyleft and no unknown licence through."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.example import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from check_licences import check


def install(folder: Path, name: str, *fields: str) -> None:
    """Write the metadata of a package, as an installer leaves it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    lines = ("Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields)
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")


def outcome(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *licence: str, accepted: tuple[str, ...] = ()
) -> list[str]:
    """What the check says of a package that an extra of an extra brings along, under that licence."""
    extras = [
        "Provides-Extra: part",
        "Provides-Extra: all",
        'Requires-Dist: checked-middle; extra == "part"',
        'Requires-Dist: checked-root[part]; extra == "all"',
    ]
    install(folder, "checked-root", *extras, "License-Expression: MIT")
    install(folder, "checked-middle", "Requires-Dist: checked-leaf>=1", "License: BSD")
    install(folder, "checked-leaf", *licence)
    monkeypatch.syspath_prepend(str(folder))
    return check("checked-root", dict.fromkeys(accepted, "a reason"))


@pytest.mark.parametrize(
    "fields",
    [
        ["License-Expression: MIT"],
        ["License-Expression: GPL-2.0-only OR (MIT AND Apache-2.0)"],
        ["License: Apache 2.0"],
        ["Classifier: License :: OSI Approved :: BSD License", "License: as the file LICENSE says"],
    ],
    ids=str,
)
def test_a_permissive_licence_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: list[str]):
    assert outcome(tmp_path, monkeypatch, *fields) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["License-Expression: GPL-3.0-or-later"], "is under 'GPL-3.0-or-later'"),
        (["License-Expression: MIT AND AGPL-3.0-only"], "is under 'MIT AND AGPL-3.0-only'"),
        (["License-Expression: (MIT OR Apache-2.0) AND GPL-2.0-only"], "is under"),
        (["Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)"], "is under 'GNU"),
        (["License: GNU AGPLv3"], "is under 'GNU AGPLv3'"),
        (["License-Expression: LGPL-3.0-only"], "is under 'LGPL-3.0-only'"),
        (
            ["Classifier: License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)"],
            "is under 'Mozilla",
        ),
        (["License-Expression: LicenseRef-Ours"], "does not name a licence we know"),
        (["License: ask our lawyer"], "does not name a licence we know"),
        ([], "does not name a licence we know"),
    ],
    ids=str,
)
def test_copyleft_and_an_unknown_licence_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: list[str], reason: str
):
    (problem,) = outcome(tmp_path, monkeypatch, *fields)
    assert problem.startswith(f"checked-leaf (required by checked-middle) {reason}")


def test_weak_copyleft_passes_when_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mozilla = "License-Expression: MPL-1.1 OR GPL-2.0-only"
    assert outcome(tmp_path, monkeypatch, mozilla, accepted=("checked-leaf",)) == []


def test_strong_copyleft_fails_although_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    problems = outcome(tmp_path, monkeypatch, "License: GPL", accepted=("checked-leaf",))
    assert problems[0].startswith("checked-leaf (required by checked-middle) is under 'GPL'")


def test_an_entry_that_nothing_needs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    problems = outcome(tmp_path, monkeypatch, "License: MIT", accepted=("checked-leaf", "nowhere"))
    assert [problem.partition(":")[0] for problem in problems] == [
        "checked-leaf needs no acceptance",
        "nowhere needs no acceptance",
    ]


def test_a_dependency_that_is_not_installed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(tmp_path, "checked-root", "Requires-Dist: checked-nowhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert check("checked-root", {}) == [
        "checked-nowhere (required by checked-root) is not installed, so its licence cannot be read."
    ]
