"""OpenAPI descriptions: a document for each operation and each schema, and one for the API itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN, OPENAPI, PLAIN, YAML
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, distinct_names, markdown_line

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_DEEPEST = 6


def read_openapi(data: bytes) -> Parsed:
    """The operations of an API; the text as it stands where it cannot be parsed."""
    text = data.decode("utf-8", "replace")
    api, kind, problem = _load(text)
    if not isinstance(api, Mapping):
        return Parsed(text=text, media_type=kind, problems=[problem] if problem else [])
    parts = [_about(api), *_operations(api), *_schemas(api)]
    return Parsed(text="", media_type=OPENAPI, parts=distinct_names(parts))


def _load(text: str) -> tuple[Any, str, str]:
    """The value of the text, else the media type to read it by, and why."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text), "", ""
        import yaml

        return yaml.safe_load(text), "", ""
    except ImportError:
        return None, YAML, ""
    except Exception as error:  # whatever a text makes of the parser
        reason = " ".join(str(error).split())[:150]
        return None, PLAIN, f"could not be read as OpenAPI ({reason}), so it was read as text."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words_of(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _description(value: Any) -> str:
    return _words_of(_mapping(value).get("description"))


def _about(api: Mapping[str, Any]) -> Parsed:
    info = _mapping(api.get("info"))
    title = _words_of(info.get("title")) or "API"
    lines = [f"# {title}", _description(info)]
    lines += [f"Version: {version}"] if (version := _words_of(info.get("version"))) else []
    lines += [f"Server: {_words_of(_mapping(server).get('url'))}" for server in _list(api.get("servers"))]
    tags = map(_mapping, _list(api.get("tags")))
    lines += [f"{_words_of(tag.get('name'))}: {_description(tag)}" for tag in tags]
    return _part("about", title, lines)


def _operations(api: Mapping[str, Any]) -> Iterator[Parsed]:
    for path, item in _mapping(api.get("paths")).items():
        for method, operation in _mapping(item).items():
            if method in _METHODS and isinstance(operation, Mapping):
                yield _operation(f"{method.upper()} {path}", _mapping(item), operation)


def _operation(name: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Parsed:
    summary = _words_of(operation.get("summary"))
    operation_id = _words_of(operation.get("operationId"))
    lines = [f"# {name}", summary, _description(operation)]
    lines += [f"Operation: `{operation_id}`"] if operation_id else []
    lines += ["Deprecated."] if operation.get("deprecated") else []
    parameters = list(map(_parameter, _list(item.get("parameters")) + _list(operation.get("parameters"))))
    lines += ["Parameters:", "\n".join(parameters)] if parameters else []
    body = _mapping(operation.get("requestBody"))
    if body:
        lines += [f"Body: {_description(body) or _media_schema(body)}", *_media_lines(body)]
    answers = [
        f"- {code}: {_description(answer) or _reference(answer)}{_media_schema(answer)}"
        for code, answer in _mapping(operation.get("responses")).items()
    ]
    lines += ["Answers:", "\n".join(answers)] if answers else []
    labels = [_words_of(tag) for tag in _list(operation.get("tags")) if _words_of(tag)]
    return _part(operation_id or name, f"{name} — {summary}" if summary else name, lines, labels)


def _parameter(value: Any) -> str:
    parameter = _mapping(value)
    name = _words_of(parameter.get("name")) or _reference(value)
    kind = _type(parameter.get("schema") or parameter)
    needed = ", required" if parameter.get("required") else ""
    words = ", ".join(filter(None, (_words_of(parameter.get("in")), kind)))
    about = _description(parameter)
    return f"- `{name}` ({words}{needed})" + (f": {about}" if about else "")


def _media_schema(value: Any) -> str:
    for content in _mapping(_mapping(value).get("content")).values():
        if kind := _type(_mapping(content).get("schema")):
            return f" ({kind})"
    return ""


def _media_lines(value: Any) -> list[str]:
    for content in _mapping(_mapping(value).get("content")).values():
        lines = list(_properties(_mapping(content).get("schema"), 0))
        if lines:
            return ["\n".join(lines)]
    return []


def _reference(value: Any) -> str:
    return _words_of(_mapping(value).get("$ref")).rpartition("/")[2]


def _type(value: Any) -> str:
    schema = _mapping(value)
    if name := _reference(schema):
        return name
    if items := schema.get("items"):
        return f"list of {_type(items) or 'values'}"
    choices = ", ".join(_words_of(choice) for choice in _list(schema.get("enum")))
    kind = schema.get("type")
    names = " or ".join(map(str, kind)) if isinstance(kind, list) else _words_of(kind)
    return f"{names}: {choices}" if choices else names


def _properties(value: Any, depth: int) -> Iterator[str]:
    schema = _mapping(value)
    required = _list(schema.get("required"))
    for name, inner in _mapping(schema.get("properties")).items():
        about, needed = _description(inner), ", required" if name in required else ""
        yield "  " * depth + f"- `{name}` ({_type(inner)}{needed})" + (f": {about}" if about else "")
        if depth < _DEEPEST:
            yield from _properties(inner, depth + 1)


def _schemas(api: Mapping[str, Any]) -> Iterator[Parsed]:
    schemas = _mapping(_mapping(api.get("components")).get("schemas")) or _mapping(api.get("definitions"))
    for name, schema in schemas.items():
        lines = [f"# {name}", _description(schema), _type(schema)]
        yield _part(f"schema {name}", str(name), [*lines, "\n".join(_properties(schema, 0))])


def _part(name: str, title: str, lines: list[str], labels: list[str] | None = None) -> Parsed:
    blocks = [line if line.startswith(("#", "- ")) else _paragraphs(line) for line in lines]
    return Parsed(
        text="\n\n".join(filter(None, blocks)),
        media_type=MARKDOWN,
        name=name,
        title=" ".join(title.split()),
        labels=labels or [],
    )


def _paragraphs(text: str) -> str:
    """A description, which is Markdown of its own; what would be a heading in it is none here."""
    return "\n".join(markdown_line(line) if line.startswith("#") else line for line in text.split("\n"))
