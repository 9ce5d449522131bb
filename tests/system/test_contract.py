"""The server against its own OpenAPI document, at length: what `make test` does in short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_two_hundred_cases_of_each_operation_get_answers_that_the_document_describes():
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(TESTS / "test_server_contract.py")],
        cwd=TESTS.parent,
        env=os.environ | {"CONTRACT_EXAMPLES": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
