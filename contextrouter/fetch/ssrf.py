"""SSRF protection: which IP addresses may be connected to, and which URLs may be fetched.

The table follows the IANA special-purpose address registries (RFC 6890 and its successors); Python's own
`is_global` changed its mind between releases, and knows of no metadata service.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from contextrouter.runtime.masking import mask

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # a public number, and yet a cloud's own metadata service
        ),
    )
)
_OPEN_6 = IPv6Network(
    "2000::/3"
)  # all that was ever handed out; loopback, link-local, unique-local, multicast lie outside
_CLOSED_6 = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20"))
)  # protocols (Teredo, ORCHID), documentation
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_BAD = re.compile(r"[\s\x00-\x1f\x7f\\]")


def embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address (mapped, compatible, 6to4, NAT64), else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour or address
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether an IP address is public or in one of the `allowed` networks. An IPv4 address inside an IPv6
    address decides.
    """
    try:
        outer: Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    effective = embedded_ipv4(outer)
    if any(
        candidate in network
        for network in allowed
        for candidate in (outer, effective)
        if candidate.version == network.version
    ):
        return True
    if isinstance(effective, IPv4Address):
        return not any(effective in network for network in _CLOSED_4)
    return effective in _OPEN_6 and not any(effective in network for network in _CLOSED_6)


def networks(texts: Sequence[str], owner: str) -> tuple[Network, ...]:
    """Return the networks that `allow_private` names. Raises ValueError."""
    if isinstance(texts, str | bool):
        raise ValueError(f'{owner} {texts!r} is no list of networks; give one such as ["10.1.0.0/16"].')
    try:
        return tuple(ip_network(text) for text in texts)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f'{owner} holds what is no network ({error}); give one such as ["10.1.0.0/16"].'
        ) from None


def check_url(url: str) -> str:
    """Return `url`. Raises ValueError when it is not http(s) with a host, or carries a user name."""
    try:
        parts = urlsplit(url)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not _BAD.search(url)
            and parts.port != 0
        )
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"Address {mask(url)!r} is not http or https with a host; give one such as"
            " 'https://example.org/feed'."
        )
    if "@" in parts.netloc:
        raise ValueError(
            f"Address {mask(url)!r} carries a user name; give it in `credentials`, which are kept to their"
            " host."
        )
    return url


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a checked URL."""
    parts = urlsplit(url)
    return (
        parts.scheme,
        (parts.hostname or "").lower(),
        parts.port or (443 if parts.scheme == "https" else 80),
    )
