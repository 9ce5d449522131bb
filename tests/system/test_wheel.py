"""The package as others install it: the wheel alone holds what the demo, the explorer and the commands
need.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
USED = """
import sys, contextrouter
from contextrouter.cli import main
from contextrouter.server import page
assert contextrouter.__file__.startswith(sys.argv[1]), contextrouter.__file__
assert len(page.ENDPOINTS) >= 5
sys.argv = ["contextrouter", "demo"]
main()
"""


def test_the_wheel_alone_runs_the_demo_and_holds_the_page(tmp_path: Path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "there", wheel], check=True)
    told = subprocess.run(
        [sys.executable, "-c", USED, str(tmp_path / "there")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "17 documents and 10 facts from 5 sources" in told.stdout
    assert "/explorer" in told.stdout
