"""Secret masking: what is taken out of messages, logs and settings before anyone sees them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

# Words of names whose values are secrets wherever they occur: settings, messages of failing sources, logs.
# The long ones also stand at the end of another word, as in `dbpassword`.
_SHORT = frozenset(("key", "pass", "pwd", "auth", "bearer", "sig", "dsn", "jwt", "cookie", "creds"))
_LONG = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "authorization",
    "signature",
)
_ENDINGS = (*_LONG, "apikey", "accesskey", "secretkey", "privatekey", "authkey")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

# Everything that is repeated has a bound, or is hidden and so never read twice: the time is in proportion to
# the text, whoever wrote it.
_NAMED = re.compile(
    r"""(?x) (?P<name> [\w-]{1,64}+ ) (?: (?P<mark> \\{0,3} ["']? \s{0,8} [=:] ) >? | \\{0,3} ["'] \s{0,8} , (?= \s{0,8} b? ["'] ) )
        \s{0,8} (?: b (?= ["'] ) )? (?: (?i: bearer | basic | digest | token ) \s{1,8} )?"""  # noqa: E501 - a pattern is read in one line
)
_VALUE = re.compile(
    r"""(?xs) (?P<open> ["'`] ) (?: (?! (?P=open) ) (?: \\. | [^\\] ) )*+ | (?P<escaped> \\{1,3} ["'] ) (?: (?! (?P=escaped) ) . )*+
        | \( [^()]*+ | \[ [^\[\]]*+ | \{ [^{}]*+ | [^\s"'`&;]+ (?<! [,.)\]}>] )"""  # noqa: E501 - a pattern is read in one line
)
_COOKIES = re.compile(r"""[^\s"';]++(?:;\s?[^\s"';]++)*+""")
_ASIDE = re.compile(r"(?i)(?:api|access|secret|private)\s{1,4}\Z")
_UNNAMED = re.compile(r"""(?xs) ( \b (?i: bearer | basic ) \s{1,8} ) [A-Za-z0-9._~+/=-]{8,}
        | ( :// [^/\s:]* : ) (?: (?! :// ) [^\s"'<>] )* (?= @ )
        | ( -----BEGIN\ [A-Z ]{0,40} PRIVATE\ KEY----- ) (?: (?! -----END ) . )*+""")


def is_secret(name: str) -> bool:
    """Whether a value of this name is a secret: a word of `X-Api-Key`, `accessToken` or `db_passwords` says
    so.
    """
    return any(_tells(word.lower()) or _tells(word.lower().removesuffix("s")) for word in _WORD.findall(name))


def _tells(word: str) -> bool:
    return word in _SHORT or word.endswith(_ENDINGS)


def spellings(secrets: Iterable[str]) -> list[str]:
    """The secrets that are long enough to be told from other text, also as URLs and reprs spell them; the
    longest first.
    """
    known = [secret for secret in secrets if len(secret) >= 4]
    found = {
        text for s in known for text in (s, quote(s, ""), quote_plus(s), s.encode("unicode_escape").decode())
    }
    return sorted(found, key=lambda text: (-len(text), text))


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without secrets: known values, values of secret names, bearer tokens, passwords in URLs,
    private keys.

    What hides a word too many is chosen over what may show a part of a secret. Cut a text after this, not
    before.
    """
    for secret in spellings(secrets):
        text = text.replace(secret, "***")
    text = _UNNAMED.sub(lambda found: next(group for group in found.groups() if group) + "***", text)
    shown, at = [], 0
    for found in _NAMED.finditer(text):
        if found.start() < at or not _names_secret(text, found):
            continue
        cookies = _COOKIES.match(text, found.end()) if found["name"].lower().endswith("cookie") else None
        value = cookies or _VALUE.match(text, found.end())
        if value is not None:
            shown += [
                text[at : found.end()],
                "" if cookies else value["open"] or value["escaped"] or "",
                "***",
            ]
            at = value.end()
    return "".join((*shown, text[at:]))


def _names_secret(text: str, found: re.Match[str]) -> bool:
    """Whether what is found before a value names a secret. In prose, a "key:" alone is not one, and a
    KeyError never.
    """
    words = _WORD.findall(found["name"])
    if not words or not _tells(words[-1].lower()):
        return False
    mark, before = found["mark"] or "'", text[max(0, found.start() - 12) : found.start()]
    plain = (
        found["name"].lower() in ("key", "pass")
        and not mark.strip("\\").startswith(('"', "'"))
        and not mark.endswith("=")
    )
    return not plain or _ASIDE.search(before) is not None
