"""HTTP fetching of untrusted URLs: the one client of every connector, with SSRF protection, limits and an
HTTP cache.

`Fetcher` sends requests, `FetchOptions` are its limits, `Fetched` is the response. A connection goes only to
an IP address that passed the check. Bodies have a size limit while they are decoded. Credentials go only to
their own host.
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
