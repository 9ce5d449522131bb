"""The connector `rss`: items of RSS, Atom and JSON feeds."""

from contextrouter.builtin.connectors.rss.connector import Rss

__all__ = ["Rss"]
