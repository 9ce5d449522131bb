"""Check the types of all code that others begin with: the templates of `plugins new`, the tutorial, the example
in `plugins/`, and the programs of docs/python.md. pyright's strict mode must find nothing. `make check` runs it.

mypy checks the same in the tests. This needs basedpyright, which brings its own JavaScript: nothing is downloaded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from contextrouter.cli.plugins.new import NEW_KINDS, write_package

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"`([\w./-]+\.py)`:\n\n```python\n(.*?)^```$", re.M | re.S)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
LENIENT = ("glossary.py",)  # reads JSON: its values have no types


def main() -> int:
    """Write the code into an empty folder, print what pyright finds, and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for kind in NEW_KINDS:
            write_package(kind, f"my_{kind}", root / kind)
        for name, text in FILE.findall((ROOT / "docs" / "plugin-tutorial.md").read_text("utf-8")):
            path = root / "tutorial" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        (root / "programs").mkdir()
        blocks = BLOCK.findall((ROOT / "docs" / "python.md").read_text("utf-8"))
        (root / "programs" / "python.py").write_text("\n".join(blocks), "utf-8")
        (root / "glossary.py").write_text((ROOT / "plugins" / "glossary.py").read_text("utf-8"), "utf-8")
        roots = [{"root": kind, "extraPaths": [str(ROOT)]} for kind in (*NEW_KINDS, "tutorial", "programs")]
        config = {
            "typeCheckingMode": "strict",
            "extraPaths": [str(ROOT)],
            "executionEnvironments": roots,
            "ignore": list(LENIENT),
        }
        (root / "pyrightconfig.json").write_text(json.dumps(config), "utf-8")
        command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
        return subprocess.run(command, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
