"""Links in answers: makes links, images and HTML harmless that a stranger's text may have put there.

An image that a client loads, or a link that a user follows, can carry what the conversation says to a
stranger's server. The URLs of the citations stay. Of another one, `http` becomes `hxxp` and `www.` becomes
`www[.]`; the target of a link or an image is parted from its text, so that it is neither. HTML is escaped, in
code too: a text that is cut into pieces does not tell for certain what is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST = 4_000
"""The most characters that wait for the end of a URL."""
_ITEM = (
    r"(?i:(?P<target>\]\()(?P<destination>\s{0,20}<[^<>\n]*>|[^\s)]*)"
    r"|(?P<definition>(?<!\d)\]:|\]:(?=\s{0,20}<?(?:[a-z][a-z0-9+.-]{0,30}:|/[/\\]|\\|&)))"
    r"|<(?P<auto>https?://[^\s<>]*)>"
    r"|(?P<tag><)(?=[a-z/!?]|[^\s<>]*@)"
    r"|(?P<url>https?://[^\s<>\[\]\"`]*)"
    r"|(?P<www>(?<![a-z0-9])www\.))"
)
# What stands at the end of a piece and may become one of these with what comes next.
_OPEN = (
    r"(?i:\](?:\((?:\s{0,20}(?:<[^<>\n]*)?|[^\s)]*))?|\]:\s{0,20}<?[^\s]{0,40}|<[^\s<>]*"
    r"|https?://[^\s<>\[\]\"`]*|h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?|(?<![a-z0-9])w(?:ww?)?)\Z"
)
_AFTER_URL = ".,;:!?)'*_"


class LinkFilter:
    """Makes one answer harmless, piece by piece. `allowed` are the URLs that stay as they are.

    The output does not depend on how the text is cut into pieces.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        # The URL of a citation is a stranger's, too: `javascript:` stays harmless.
        self._allowed = frozenset(url for url in allowed if re.match("(?i:https?://)", url))
        self._waiting = ""
        self._last = ""  # the character before what waits: a word does not begin behind a letter

    def feed(self, piece: str) -> str:
        """Add a piece of the answer. Returns the text that is ready to show."""
        return self._pass(self._waiting + piece, final=False)

    def end(self) -> str:
        """End the answer. Returns the text that was waiting."""
        return self._pass(self._waiting, final=True)

    def _pass(self, waiting: str, *, final: bool) -> str:
        text, position, parts = self._last + waiting, len(self._last), [""]
        items, open_end = re.compile(_ITEM), re.compile(_OPEN)
        end = len(text)
        while True:
            item = items.search(text, position)
            tail = None if final else open_end.search(text, position)
            if tail and len(text) - tail.start() <= _LONGEST and (not item or tail.start() <= item.start()):
                end = tail.start()
                item = None
            if item is None:
                parts.append(text[position:end])
                break
            parts += [text[position : item.start()], self._replace(item)]
            position = item.end()
        self._last, self._waiting = text[:end][-1:], text[end:]
        return "".join(parts)

    def _defuse(self, text: str) -> str:
        return re.sub(_ITEM, self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        kind = match.lastgroup
        if kind == "destination":
            import html  # few answers have links

            destination = match["destination"]
            url = html.unescape(destination.strip().strip("<>"))
            if url in self._allowed:
                return match[0]
            return f"] ({self._defuse(destination)}"
        if kind == "definition":
            return "] :"
        if kind == "auto":
            return match[0] if match["auto"] in self._allowed else f"&lt;{_defang(match['auto'])}>"
        if kind == "tag":
            return "&lt;"
        if kind == "www":
            return match[0][:-1] + "[.]"
        return self._checked(match[0])

    def _checked(self, url: str) -> str:
        """Return a URL in the text: unchanged where it is allowed, without the signs behind it."""
        bare = url
        while bare not in self._allowed and bare and bare[-1] in _AFTER_URL:
            bare = bare[:-1]
        return url if bare in self._allowed else _defang(url)


class AllLinks:
    """Leaves every link as it is."""

    def feed(self, piece: str) -> str:
        """Return the piece."""
        return piece

    def end(self) -> str:
        """Return nothing: no text waits."""
        return ""


def _defang(url: str) -> str:
    return re.sub(r"(?i)http(?=s?://)", lambda match: match[0].replace("t", "x").replace("T", "X"), url)


def harmless(text: str, allowed: Iterable[str]) -> str:
    """Return a whole answer with harmless links."""
    links = LinkFilter(allowed)
    return links.feed(text) + links.end()
