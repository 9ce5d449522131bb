"""The provider `sqlite`: documents in one SQLite file."""

from contextrouter.builtin.providers.sqlite.provider import Sqlite

__all__ = ["Sqlite"]
