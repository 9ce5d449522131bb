"""The command line: one module for each command. Only this folder imports typer and rich."""

from __future__ import annotations

import importlib.util
import sys

from contextrouter.errors import pip_install


def main() -> None:
    """Run `contextrouter`, and end the process.

    Exits 2 and says what to install when the packages of the extra `cli` are missing.
    """
    absent_packages = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if absent_packages:
        sys.stderr.write(f"The command line needs {' and '.join(absent_packages)}: {pip_install('cli')}\n")
        sys.exit(2)
    from contextrouter.cli.app import start

    start()
