"""Secret masking (redaction) in messages, logs and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

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

# Patterns are texts, which `re` compiles when they are first used: most programs mask nothing.
# Every repetition has a bound or is possessive, so the time is linear in the text, even for hostile input.
_NAMED = r"""(?x) (?P<name> [\w-]{1,64}+ ) (?: (?P<mark> \\{0,3} ["']? \s{0,8} [=:] ) >? | \\{0,3} ["'] \s{0,8} , (?= \s{0,8} b? ["'] ) )
        \s{0,8} (?: b (?= ["'] ) )? (?: (?i: bearer | basic | digest | token ) \s{1,8} )?"""  # noqa: E501 - a pattern is read in one line
_VALUE = r"""(?xs) (?P<open> ["'`] ) (?: (?! (?P=open) ) (?: \\. | [^\\] ) )*+ | (?P<escaped> \\{1,3} ["'] ) (?: (?! (?P=escaped) ) . )*+
        | \( [^()]*+ | \[ [^\[\]]*+ | \{ [^{}]*+ | [^\s"'`&;]+ (?<! [,.)\]}>] )"""  # noqa: E501 - a pattern is read in one line
_COOKIES = re.compile(r"""[^\s"';]++(?:;\s?[^\s"';]++)*+""")
_ASIDE = re.compile(r"(?i)(?:api|access|secret|private)\s{1,4}\Z")
_UNNAMED = r"""(?xs) ( \b (?i: bearer | basic ) \s{1,8} ) [A-Za-z0-9._~+/=-]{8,}
        | ( :// [^/\s:]* : ) (?: (?! :// ) [^\s"'<>] )* (?= @ )
        | ( -----BEGIN\ [A-Z ]{0,40} PRIVATE\ KEY----- ) (?: (?! -----END ) . )*+"""


def is_secret(name: str) -> bool:
    """Whether a name such as `X-Api-Key`, `accessToken` or `db_passwords` contains a word for a secret."""
    return any(
        _is_secret_word(word.lower()) or _is_secret_word(word.lower().removesuffix("s"))
        for word in _WORD.findall(name)
    )


def _is_secret_word(word: str) -> bool:
    return word in _SHORT or word.endswith(_ENDINGS)


def spellings(secrets: Iterable[str]) -> list[str]:
    """Return the secrets that are long enough to recognize, also as URLs and reprs write them,
    longest first.
    """
    long_enough = [secret for secret in secrets if len(secret) >= 4]
    if not long_enough:
        return []
    from urllib.parse import quote, quote_plus  # loaded only where there are secrets

    texts = {
        text
        for s in long_enough
        for text in (s, quote(s, ""), quote_plus(s), s.encode("unicode_escape").decode())
    }
    return sorted(texts, key=lambda text: (-len(text), text))


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without secrets: known values, values of secret names, bearer tokens, passwords in URLs,
    private keys.

    In doubt it hides a word too many. Mask a text before you shorten it, not after.
    """
    for secret in spellings(secrets):
        text = text.replace(secret, "***")
    text = re.sub(_UNNAMED, lambda match: next(group for group in match.groups() if group) + "***", text)
    parts, position = [], 0
    for match in re.finditer(_NAMED, text):
        if match.start() < position or not _names_secret(text, match):
            continue
        cookies = _COOKIES.match(text, match.end()) if match["name"].lower().endswith("cookie") else None
        value = cookies or re.compile(_VALUE).match(text, match.end())
        if value is not None:
            parts += [
                text[position : match.end()],
                "" if cookies else value["open"] or value["escaped"] or "",
                "***",
            ]
            position = value.end()
    return "".join((*parts, text[position:]))


def mask_error(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the message of an error without secrets. In settings errors the key before a message stays
    apart from it: `api_key: environment variable …` names no value of `api_key`.
    """
    problems = getattr(error, "problems", ())
    if not problems:
        return mask(str(error), secrets)
    lines = []
    for problem in problems:
        message = mask(problem.message, secrets)
        where = str(problem).removesuffix(problem.message)
        lines.append(f"{where}{message}")
    return "\n".join(lines)


def _names_secret(text: str, match: re.Match[str]) -> bool:
    """Whether the matched name is a secret's. In prose, "key:" alone is not, and a KeyError never."""
    words = _WORD.findall(match["name"])
    if not words or not _is_secret_word(words[-1].lower()):
        return False
    mark, before = match["mark"] or "'", text[max(0, match.start() - 12) : match.start()]
    plain = (
        match["name"].lower() in ("key", "pass")
        and not mark.strip("\\").startswith(('"', "'"))
        and not mark.endswith("=")
    )
    return not plain or _ASIDE.search(before) is not None
