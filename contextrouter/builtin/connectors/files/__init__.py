"""The connector `files`: the files of a folder."""

from contextrouter.builtin.connectors.files.connector import Files

__all__ = ["Files"]
