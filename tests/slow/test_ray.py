"""Ray in an environment of its own, beside the packages of this one: the suite is `ray_cluster.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_runner_on_ray_obeys_the_laws_of_runners(tmp_path: Path):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "ray>=2.52"], check=True
    )
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (Path(own) / "beside.pth").write_text(sysconfig.get_path("purelib"))
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        ROOT / "tests" / "slow" / "ray_cluster.py",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, timeout=900, check=False)
    assert ran.returncode == 0
