"""HTTP fetching of untrusted URLs: the one client of every connector, with SSRF protection, limits and an
HTTP cache.

`Fetcher` asks; `FetchOptions` says how far it may go; `Fetched` came back. A connection is made only to an
address that was checked, and to that very address; bodies are bounded as they are decoded; credentials stay
with their host.
"""

from contextrouter.fetch.client import Fetcher
from contextrouter.fetch.options import FEEDS, JSON, PAGES, FetchKeys, FetchOptions
from contextrouter.fetch.response import Fetched, FetchFailed, FetchLate
from contextrouter.fetch.ssrf import check_url, is_public, networks

__all__ = [
    "FEEDS",
    "JSON",
    "PAGES",
    "FetchFailed",
    "FetchKeys",
    "FetchLate",
    "FetchOptions",
    "Fetched",
    "Fetcher",
    "check_url",
    "is_public",
    "networks",
]
