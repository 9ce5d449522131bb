"""`python -m contextrouter` is the command line."""

from contextrouter.cli import main

main()
