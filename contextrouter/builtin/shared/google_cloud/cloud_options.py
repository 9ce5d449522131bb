"""Constructor keywords that all Google Cloud plugins share: their checks, and the address of a service."""

from __future__ import annotations

import math
import os
import re
from typing import NamedTuple

from contextrouter.errors import PluginError

PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
MOST_NUMBERS = 100_000  # of one vector
_LONGEST = 86_400.0  # seconds of one call
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")
SHORT_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LOCATION = re.compile(r"[a-z]{2,}|[a-z]+-[a-z]+\d{1,2}")
_ZONE = re.compile(r"([a-z]+-[a-z]+\d{1,2})-[a-z]")
_LARGEST_PORT = 65_535
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]):\d{1,5}")
_ADDRESS = re.compile(r"(?:https://)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?")


class CloudOptions(NamedTuple):
    """How a Google service is reached. `project` "": the environment names it, or the credentials do."""

    project: str
    location: str
    credentials_file: str
    endpoint: str
    request_timeout: float

    def check(self) -> CloudOptions:
        """Return the options. Raises ValueError for one that cannot be right."""
        if self.project:
            check_name("project", self.project)
        _check_location(self.location)
        check_address("endpoint", self.endpoint)
        check_above_zero("request_timeout", self.request_timeout, _LONGEST)
        return self

    def address(self, host: str) -> tuple[str, bool]:
        """Return host:port, and whether it is asked with TLS and credentials: all but a loopback address
        without https:// is.
        """
        endpoint = self.endpoint or host
        if _LOOPBACK.fullmatch(endpoint):
            return endpoint, False
        endpoint = endpoint.removeprefix("https://")
        return endpoint if re.search(r":\d+$", endpoint) else f"{endpoint}:443", True

    def find_project(self, of_credentials: str | None) -> str:
        """Return the project. Raises PluginError where nothing names one."""
        project = self.project or os.environ.get(PROJECT_VARIABLE, "") or of_credentials or ""
        if not project:
            raise PluginError(f"No Google Cloud project is named. Set `project`, or {PROJECT_VARIABLE}.")
        return project


def _check_location(location: str) -> None:
    if not location:
        raise ValueError("location is empty. Give a region such as 'europe-west4'.")
    if zone := _ZONE.fullmatch(location):
        raise ValueError(f"location {location!r} is a zone. Give its region, {zone[1]!r}.")
    if not _LOCATION.fullmatch(location):
        raise ValueError(f"location {location!r} is no region. Give one such as 'europe-west4', or 'global'.")


def check_address(key: str, address: str) -> str:
    """A host[:port], or nothing. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if address and not _ADDRESS.fullmatch(address):
        raise ValueError(
            f"{key} {address!r} is no host. Give host[:port], such as 'vectorsearch.googleapis.com', or"
            " nothing."
        )
    if host and port.isdecimal() and not 0 < int(port) <= _LARGEST_PORT:
        raise ValueError(
            f"{key} {address!r} has no port from 1 to {_LARGEST_PORT}. Give one after the colon."
        )
    return address


def check_short_name(key: str, value: str) -> str:
    """A name of a collection or of its index. Raises ValueError."""
    if SHORT_NAME.fullmatch(value):
        return value
    close = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63].strip("-")
    example = f", such as {close!r}" if SHORT_NAME.fullmatch(close) else ""
    raise ValueError(
        f"{key} {value!r} is not allowed as a name. Give 1 to 63 small letters, digits and hyphens, first a"
        f" letter, last no hyphen{example}."
    )


def check_name(key: str, value: str) -> str:
    """A name of a resource, which becomes a part of a path. Raises ValueError."""
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{key} {value!r} is no name of a Google Cloud resource. Give letters, digits and hyphens."
        )
    return value


def check_above_zero(key: str, value: float, maximum: float = math.inf) -> float:
    """A number above 0, of `most` at most. Raises ValueError."""
    if not (math.isfinite(value) and 0 < value <= maximum):
        limit = "" if maximum == math.inf else f" and at most {maximum:.15g}"
        raise ValueError(f"{key} {value!r} is out of range. Give a number above 0{limit}.")
    return value
