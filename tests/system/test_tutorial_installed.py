"""The tutorial for plugin authors in a fresh environment: everything is installed as a reader does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.typing_along import Typist

ROOT = Path(__file__).parents[2]


def test_the_tutorial_can_be_typed_along_in_a_fresh_environment(tmp_path: Path):
    """It needs a package index for the dependencies."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    bin_ = tmp_path / "venv" / "bin"
    pip = [bin_ / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    subprocess.run([*pip, "install", f"{ROOT}[cli]", "pytest"], check=True, env=environment)
    (tmp_path / "empty").mkdir()
    typist = Typist(ROOT / "docs" / "plugin-tutorial.md", tmp_path / "empty", environment)
    typist.run()
    listed = subprocess.run(
        [bin_ / "contextrouter", "plugins", "list"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [
        name for name in ("tickets", "urgent", "ticket_numbers") if f"  {name} " not in listed.stdout
    ] == []
