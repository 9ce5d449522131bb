"""Runs the command line for `python -m contextrouter`."""

from contextrouter.cli import main

main()
