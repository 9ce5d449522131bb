"""The exceptions, all of them.

ContextRouterError
├── SettingsError            .problems: what is wrong, where, how to mend it   fatal at start
│   └── PluginNotFound       .use .kind .known
├── MissingDependency        .package .extra                                    says the pip command
├── RequestRefused           .reason                                            an empty question, a policy, a quota
├── PluginError              .plugin .kind
│   ├── SourceError          isolated: becomes a source report
│   │   └── SourceTimeout
│   ├── StageError           skipped or raised, as `on_error` says
│   └── ContractError        .law                                               what the contract forbids
├── AllSourcesFailed         .reports                                           the outside world is gone
└── IngestError              .document

Configuration errors stop the start; one source's errors never stop an answer; programming errors are never swallowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from contextrouter.model import SourceReport


class ContextRouterError(Exception):
    """The root: catch this to catch everything contextrouter raises on purpose."""


class Problem:
    """One thing wrong with the settings: where (`file`, `line`, dotted `key`) and what (`message`)."""

    __slots__ = ("file", "key", "line", "message")

    def __init__(self, message: str, *, key: str = "", file: str = "", line: int | None = None) -> None:
        self.message, self.key, self.file, self.line = message, key, file, line

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line else "")
        return ": ".join(part for part in (place, self.key, self.message) if part)

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"


class SettingsError(ContextRouterError):
    """The settings do not validate. `.problems` lists everything wrong at once."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class PluginNotFound(SettingsError):
    """A `use` names no registered plugin of its kind. `.use`, `.kind`, `.known`."""

    def __init__(self, use: str, kind: str, known: Sequence[str], *, problem: Problem | None = None) -> None:
        self.use, self.kind, self.known = use, kind, tuple(known)
        listed = ", ".join(self.known) or "none"
        super().__init__([problem or Problem(f"{kind} plugin {use!r} is not registered. Registered {kind} plugins: {listed}.")])


class MissingDependency(ContextRouterError):
    """An optional package is not installed. `.package`, and `.extra`, which brings it."""

    def __init__(self, package: str, extra: str, *, what: str = "") -> None:
        self.package, self.extra = package, extra
        subject = what or f"Package {package!r}"
        super().__init__(f"{subject} needs the extra {extra!r}: pip install 'contextrouter[{extra}]'.")


class RequestRefused(ContextRouterError):
    """The request was refused before anything ran: an empty question, a policy, a quota. `.reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class PluginError(ContextRouterError):
    """A plugin failed. `.plugin` is the instance's name in the settings, `.kind` its kind; the router attaches both."""

    def __init__(self, message: str = "", *, plugin: str = "", kind: str = "") -> None:
        self.plugin, self.kind = plugin, kind
        super().__init__(message)


class SourceError(PluginError):
    """A source could not answer. The router reports it and goes on with the others."""


class SourceTimeout(SourceError):
    """A source did not answer in time."""


class StageError(PluginError):
    """A ranking stage failed. Skipped or raised, as its `on_error` says."""


class ContractError(PluginError):
    """A plugin did what its contract forbids. `.law` names the rule."""

    def __init__(self, message: str = "", *, law: str = "", plugin: str = "", kind: str = "") -> None:
        self.law = law
        super().__init__(message or law, plugin=plugin, kind=kind)


class AllSourcesFailed(ContextRouterError):
    """Every source that was asked failed. `.reports` says how each did."""

    def __init__(self, reports: Sequence[SourceReport]) -> None:
        self.reports = tuple(reports)
        lines = "; ".join(f"{r.source}/{r.leg}: {r.status} ({r.error})" for r in self.reports)
        super().__init__(f"All {len(self.reports)} calls to sources failed: {lines}")


class IngestError(ContextRouterError):
    """A document could not be ingested. `.document` names it."""

    def __init__(self, message: str, *, document: str = "") -> None:
        self.document = document
        super().__init__(message)


# Words of names whose values are secrets wherever they occur: settings, messages of failing sources, logs. The long ones also
# stand at the end of another word, as in `dbpassword`.
_SHORT = frozenset(("key", "pass", "pwd", "auth", "bearer", "sig", "dsn", "jwt", "cookie", "creds"))
_LONG = ("token", "secret", "password", "passwd", "passphrase", "credential", "credentials", "authorization", "signature")
_ENDINGS = (*_LONG, "apikey", "accesskey", "secretkey", "privatekey", "authkey")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

# Everything that is repeated has a bound, or is hidden and so never read twice: the time is in proportion to the text, whoever
# wrote it.
_NAMED = re.compile(
    r"""(?x) (?P<name> [\w-]{1,64}+ ) (?: (?P<mark> \\{0,3} ["']? \s{0,8} [=:] ) >? | \\{0,3} ["'] \s{0,8} , (?= \s{0,8} b? ["'] ) )
        \s{0,8} (?: b (?= ["'] ) )? (?: (?i: bearer | basic | digest | token ) \s{1,8} )?"""
)
_VALUE = re.compile(
    r"""(?xs) (?P<open> ["'`] ) (?: (?! (?P=open) ) (?: \\. | [^\\] ) )*+ | (?P<escaped> \\{1,3} ["'] ) (?: (?! (?P=escaped) ) . )*+
        | \( [^()]*+ | \[ [^\[\]]*+ | \{ [^{}]*+ | [^\s"'`&;]+ (?<! [,.)\]}>] )"""
)
_COOKIES = re.compile(r"""[^\s"';]++(?:;\s?[^\s"';]++)*+""")
_ASIDE = re.compile(r"(?i)(?:api|access|secret|private)\s{1,4}\Z")
_UNNAMED = re.compile(
    r"""(?xs) ( \b (?i: bearer | basic ) \s{1,8} ) [A-Za-z0-9._~+/=-]{8,}
        | ( :// [^/\s:]* : ) (?: (?! :// ) [^\s"'<>] )* (?= @ )
        | ( -----BEGIN\ [A-Z ]{0,40} PRIVATE\ KEY----- ) (?: (?! -----END ) . )*+"""
)


def is_secret(name: str) -> bool:
    """Whether a value of this name is a secret: a word of `X-Api-Key`, `accessToken` or `db_passwords` says so."""
    return any(_tells(word.lower()) or _tells(word.lower().removesuffix("s")) for word in _WORD.findall(name))


def _tells(word: str) -> bool:
    return word in _SHORT or word.endswith(_ENDINGS)


def spellings(secrets: Iterable[str]) -> list[str]:
    """The secrets that are long enough to be told from other text, also as URLs and reprs spell them; the longest first."""
    known = [secret for secret in secrets if len(secret) >= 4]
    found = {text for s in known for text in (s, quote(s, ""), quote_plus(s), s.encode("unicode_escape").decode())}
    return sorted(found, key=lambda text: (-len(text), text))


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without secrets: known values, values of secret names, bearer tokens, passwords in URLs, private keys.

    What hides a word too many is chosen over what may show a part of a secret. Cut a text after this, not before.
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
            shown += [text[at : found.end()], "" if cookies else value["open"] or value["escaped"] or "", "***"]
            at = value.end()
    return "".join((*shown, text[at:]))


def _names_secret(text: str, found: re.Match[str]) -> bool:
    """Whether what is found before a value names a secret. In prose, a "key:" alone is not one, and a KeyError never."""
    words = _WORD.findall(found["name"])
    if not words or not _tells(words[-1].lower()):
        return False
    mark, before = found["mark"] or "'", text[max(0, found.start() - 12) : found.start()]
    plain = found["name"].lower() in ("key", "pass") and not mark.strip("\\").startswith(('"', "'")) and not mark.endswith("=")
    return not plain or _ASIDE.search(before) is not None
