"""The lower bounds of the dependencies let in no version with a known hole."""

from __future__ import annotations

import sys

import pytest
import tomli
from support.example import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from check_floors import HOLES, check


@pytest.mark.case("OPS-09")
def test_no_floor_lets_in_a_known_hole():
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert list(check(project, HOLES)) == []


@pytest.mark.case("OPS-09")
def test_a_floor_below_a_hole_and_a_missing_floor_are_named():
    project = {
        "name": "our-name",
        "dependencies": ["Holed_Package>=1.9", "sound>=1"],
        "optional-dependencies": {"web": ["holed.package>=2.0,<3", "free"], "all": ["our-name[web]"]},
    }
    problems = list(check(project, {"holed-package": ("2.0", "CVE-1")}))
    assert problems == [
        "dependencies: Holed_Package>=1.9 lets in versions with CVE-1; write holed-package>=2.0.",
        "web: free has no lower bound; write free>=VERSION.",
    ]
