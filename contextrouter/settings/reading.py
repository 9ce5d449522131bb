"""Reads settings: merges file, environment variables and call arguments, with the origin of each value."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli

from contextrouter.errors import Problem, SettingsError
from contextrouter.runtime.limited_file import read_limited
from contextrouter.runtime.masking import is_secret
from contextrouter.settings.presets import EXTENDS, merge_preset, read_preset
from contextrouter.settings.problems import Key, Problems, dotted_key
from contextrouter.settings.suggestions import nearest
from contextrouter.settings.toml_locations import locate

PREFIX = "CONTEXTROUTER_"
PLUGIN_PATHS = ("plugins", "paths")
FROM_ENVIRONMENT = (
    "plugins.paths may not come from the environment: it names folders whose code runs. Write the"
    " folders into the settings file."
)
MOST_BYTES = 4_000_000
"""The longest settings file that is read."""
MOST_SECRET_BYTES = 65_536
"""The longest file of a secret that is read."""
MOST_LEVELS = 64
"""How deep tables and lists may nest."""
_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)\}")


class Reading:
    """One reading of settings: merges the values into one tree, and collects problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems = Problems()
        self.file = ""
        self.folder = Path()

    def parse(self, source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
        """Return the tables of a file or of a mapping, above those of the preset that they extend."""
        if isinstance(source, Mapping):
            tree: dict[str, Any] = copy_tree(source)
            self._mark(tree, (), "call")
            return self._extend(tree)
        path = Path(source)
        try:
            text = read_limited(path, MOST_BYTES)
            self.file, self.folder = path.name, path.absolute().parent
        except FileNotFoundError:  # the file, or the current folder
            message = f"Settings file {str(path)!r} does not exist. `contextrouter init` writes one."
            raise SettingsError(message) from None
        except OSError as error:
            raise SettingsError(f"Settings file {str(path)!r} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            message = f"Settings file {str(path)!r} cannot be read as UTF-8 text: {error}."
            raise SettingsError(message) from None
        except ValueError as error:  # a NUL in its name
            raise SettingsError(f"Settings file {str(path)!r} cannot be read: {error}.") from None
        try:
            tree = tomli.loads(text)
        except tomli.TOMLDecodeError as error:
            at = getattr(error, "lineno", None)
            message = getattr(error, "msg", str(error))
            raise SettingsError([Problem(f"not valid TOML: {message}.", file=self.file, line=at)]) from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, tables in tables
            reason = str(error).partition(";")[0]
            raise SettingsError([Problem(f"it cannot be read: {reason}.", file=self.file)]) from None
        self.check_depth(tree)
        self.problems.root = f"{self.file}:1"
        for key, line in locate(text).items():
            self.problems.origins[dotted_key(key)] = f"{self.file}:{line}"
        return self._extend(tree)

    def _extend(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Put the preset that `extends` names below the tree."""
        if EXTENDS not in tree:
            return tree
        origins = self.problems.origins
        preset = read_preset(tree.pop(EXTENDS), origins.pop(EXTENDS))
        return merge_preset(preset, tree, origins)

    def check_depth(self, tree: Mapping[str, Any]) -> None:
        """Raise SettingsError for tables and lists that are nested deeper than any setting needs."""
        level: list[Any] = [tree]
        for _ in range(MOST_LEVELS):
            level = [inner for value in level for inner in _inner_values(value)]
            if not level:
                return
        raise SettingsError([Problem(f"tables and lists nest deeper than {MOST_LEVELS}.", file=self.file)])

    def _mark(self, value: Any, key: Key, origin: str) -> None:
        if key:
            self.problems.origins[dotted_key(key)] = origin
        if isinstance(value, dict):
            for name, inner in value.items():
                self._mark(inner, (*key, name), origin)

    def add_environment(self, tree: dict[str, Any], sections: Collection[str]) -> None:
        """Override the file by variables `CONTEXTROUTER_<SECTION>__<KEY>`. Warn of one without a section."""
        for variable, raw in sorted(self.environ.items()):
            if not variable.startswith(PREFIX):
                continue
            key = tuple(variable[len(PREFIX) :].lower().split("__"))
            if len(key) < 2 or key[0] not in sections or not all(key):
                close = nearest(key[0].split("_")[0], sections)
                hint = f" Write {PREFIX}{close.upper()}__<KEY>, with two underscores." if close else ""
                self.problems.warn(
                    f"environment variable {variable} sets nothing, because it names no section.{hint}"
                )
                continue
            if key[:2] == PLUGIN_PATHS:
                self.problems.origins[dotted_key(key)] = f"environment variable {variable}"
                self.problems.add(key, FROM_ENVIRONMENT)
                continue
            self._put(tree, key, _parse_value(raw), f"environment variable {variable}")

    def add_overrides(self, tree: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        """Override all values by call arguments: nested tables, or names joined by dots or `__`."""
        for name, value in overrides.items():
            self._put(tree, tuple(re.split(r"\.|__", name)), copy_tree(value), "call")

    def _put(self, tree: dict[str, Any], key: tuple[str, ...], value: Any, origin: str) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                self._put(tree, (*key, name), inner, origin)
            return
        table = tree
        for index, name in enumerate(key[:-1]):
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                self.problems.add_unlocated(
                    f"{origin} sets a key below {dotted_key(key[: index + 1])}, which is not a table."
                )
                return
            table = inner
        table[key[-1]] = value
        self.problems.origins[dotted_key(key)] = origin

    def resolve(
        self, value: Any, key: Key, secret: bool = False, secrets: Collection[str] = frozenset()
    ) -> Any:
        """Replace `${NAME}` by the environment variable, and `file:PATH` in a secret by the file's text.

        `secrets` are keys inside the value whose values are secrets, beside those with a secret's name. The
        values of secrets are remembered, so that messages can mask them.
        """
        if isinstance(value, dict):
            return {
                k: self.resolve(v, (*key, k), secret or k in secrets or is_secret(str(k)), secrets)
                for k, v in value.items()
            }
        if isinstance(value, list):
            return [self.resolve(v, (*key, i), secret, secrets) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        if secret and value.startswith("file:"):
            path = self.folder / value[5:]
            try:
                value = read_limited(path, MOST_SECRET_BYTES).strip()
            except (OSError, ValueError) as error:  # bytes that are no text, or a NUL in the name
                reason = getattr(error, "strerror", None) or error
                self.problems.add(key, f"secret file {str(path)!r} cannot be read: {reason}.")
                return ""
        else:
            value = _VARIABLE.sub(lambda m: self._variable(m, key, secret), value)
        if secret and value:
            self.problems.secrets.append(value)
        return value

    def _variable(self, match: re.Match[str], key: Key, secret: bool) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        if key[:2] == PLUGIN_PATHS:
            self.problems.add(key, FROM_ENVIRONMENT)
            return ""
        if name not in self.environ:
            self.problems.add(
                key, f"environment variable {name!r} is not set. Set it, or write $$ for a dollar sign."
            )
            return ""
        value = self.environ[name]
        if value and (secret or is_secret(name)):
            self.problems.secrets.append(value)
        return value


def _inner_values(value: Any) -> Iterable[Any]:
    """Return the tables and lists in a table or a list."""
    inner = value.values() if isinstance(value, Mapping) else value
    return [item for item in inner if isinstance(item, dict | list)]


def copy_tree(value: Any) -> Any:
    """Return tables as plain dictionaries and lists of their own; other values stay."""
    if isinstance(value, Mapping):
        return {str(k): copy_tree(v) for k, v in value.items()}
    if isinstance(value, msgspec.Struct):
        return copy_tree(msgspec.structs.asdict(value))
    return [copy_tree(v) for v in value] if isinstance(value, list | tuple | set | frozenset) else value


def _parse_value(raw: str) -> Any:
    """Return a variable's value: parsed as TOML or JSON if possible, else the text itself."""
    try:
        return tomli.loads(f"v = {raw}")["v"]
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw
