"""The wheel as a user installs it: in a fresh environment, away from the sources, it imports, answers and runs
the demo.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import asyncio, sys
import contextrouter

assert contextrouter.__file__.startswith(sys.argv[1]), contextrouter.__file__

async def main():
    settings = {"providers": {"memory": {"documents": [{"id": "a", "content": "An otter swims."}]}}}
    async with contextrouter.ContextRouter(settings) as router:
        print((await router.route("otter")).text)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as `make dist` builds it, in a folder without the sources."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    subprocess.run([sys.executable, ROOT / "scripts" / "check_dist.py", folder], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, extra: str, folder: Path) -> Mapping[str, str]:
    """Install the wheel into a fresh environment in `folder`; return the variables with which it is used."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}", "COLUMNS": "200"}
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"{wheel}{extra}"], check=True, cwd=folder, env=environment)
    subprocess.run([*pip, "check"], check=True, cwd=folder, env=environment)
    return environment


def output(folder: Path, environment: Mapping[str, str], *command: str) -> str:
    """Run a command of the environment; return what it prints."""
    program = shutil.which(command[0], path=environment["PATH"])
    assert program is not None
    assert program.startswith(str(folder)), program
    ran = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    return ran.stdout


def test_the_wheel_with_all_that_is_local_runs_the_demo_and_a_first_project(wheel: Path, tmp_path: Path):
    environment = install(wheel, "[local]", tmp_path)
    version = wheel.name.split("-")[1]
    assert output(tmp_path, environment, "contextrouter", "--version") == f"contextrouter {version}\n"
    assert "17 documents and 10 facts from 5 sources" in output(
        tmp_path, environment, "contextrouter", "demo"
    )
    output(tmp_path, environment, "contextrouter", "init", ".")
    output(tmp_path, environment, "contextrouter", "ingest")
    told = output(
        tmp_path, environment, "contextrouter", "route", "How often must a sourdough starter be fed?"
    )
    assert "documents/sourdough.md" in told
    assert output(tmp_path, environment, "python", "-c", ASK, str(tmp_path)).endswith("An otter swims.\n")


def test_the_wheel_without_extras_answers_from_python(wheel: Path, tmp_path: Path):
    environment = install(wheel, "", tmp_path)
    assert "An otter swims." in output(tmp_path, environment, "python", "-c", ASK, str(tmp_path))
