"""The connector `http_api`: any JSON API."""

from contextrouter.builtin.connectors.http_api.connector import HttpApi

__all__ = ["HttpApi"]
