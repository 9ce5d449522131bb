"""The connector `web`: pages, sites, and the results of search engines."""

from contextrouter.builtin.connectors.web.connector import Web

__all__ = ["Web"]
