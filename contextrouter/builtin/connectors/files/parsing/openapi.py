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


def _text(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _about(api: Mapping[str, Any]) -> Parsed:
    info = _mapping(api.get("info"))
    title = _text(info.get("title")) or "API"
    lines = [f"# {title}", _text(info.get("description"))]
    lines += [f"Version: {version}"] if (version := _text(info.get("version"))) else []
    lines += [f"Server: {_text(_mapping(server).get('url'))}" for server in _list(api.get("servers"))]
    lines += [
        f"{_text(_mapping(tag).get('name'))}: {_text(_mapping(tag).get('description'))}"
        for tag in _list(api.get("tags"))
    ]
    return _part("about", title, lines)


def _operations(api: Mapping[str, Any]) -> Iterator[Parsed]:
    for path, item in _mapping(api.get("paths")).items():
        for method, operation in _mapping(item).items():
            if method in _METHODS and isinstance(operation, Mapping):
                yield _operation(f"{method.upper()} {path}", _mapping(item), operation)


def _operation(name: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Parsed:
    summary = _text(operation.get("summary"))
    lines = [f"# {name}", summary, _text(operation.get("description"))]
    lines += [f"Operation: `{operation_id}`"] if (operation_id := _text(operation.get("operationId"))) else []
    lines += ["Deprecated."] if operation.get("deprecated") else []
    parameters = [
        _parameter(value) for value in _list(item.get("parameters")) + _list(operation.get("parameters"))
    ]
    lines += ["Parameters:", "\n".join(parameters)] if parameters else []
    body = _mapping(operation.get("requestBody"))
    if body:
        lines += [f"Body: {_text(body.get('description')) or _content(body)}", *_content_lines(body)]
    answers = [
        f"- {code}: {_text(_mapping(answer).get('description')) or _name(answer)}{_content(answer)}"
        for code, answer in _mapping(operation.get("responses")).items()
    ]
    lines += ["Answers:", "\n".join(answers)] if answers else []
    labels = [_text(tag) for tag in _list(operation.get("tags")) if _text(tag)]
    return _part(operation_id or name, f"{name} — {summary}" if summary else name, lines, labels)


def _parameter(value: Any) -> str:
    parameter = _mapping(value)
    name = _text(parameter.get("name")) or _name(value)
    kind = _type(parameter.get("schema") or parameter)
    needed = ", required" if parameter.get("required") else ""
    about = _text(parameter.get("description"))
    place = _text(parameter.get("in"))
    return f"- `{name}` ({', '.join(filter(None, (place, kind)))}{needed})" + (f": {about}" if about else "")


def _content(value: Any) -> str:
    for content in _mapping(_mapping(value).get("content")).values():
        if kind := _type(_mapping(content).get("schema")):
            return f" ({kind})"
    return ""


def _content_lines(value: Any) -> list[str]:
    for content in _mapping(_mapping(value).get("content")).values():
        lines = list(_properties(_mapping(content).get("schema"), 0))
        if lines:
            return ["\n".join(lines)]
    return []


def _name(value: Any) -> str:
    return _text(_mapping(value).get("$ref")).rpartition("/")[2]


def _type(value: Any) -> str:
    schema = _mapping(value)
    if name := _name(schema):
        return name
    if items := schema.get("items"):
        return f"list of {_type(items) or 'values'}"
    choices = ", ".join(_text(choice) for choice in _list(schema.get("enum")))
    kind = schema.get("type")
    names = " or ".join(map(str, kind)) if isinstance(kind, list) else _text(kind)
    return f"{names}: {choices}" if choices else names


def _properties(value: Any, depth: int) -> Iterator[str]:
    schema = _mapping(value)
    required = _list(schema.get("required"))
    for name, inner in _mapping(schema.get("properties")).items():
        about, needed = _text(_mapping(inner).get("description")), ", required" if name in required else ""
        yield "  " * depth + f"- `{name}` ({_type(inner)}{needed})" + (f": {about}" if about else "")
        if depth < _DEEPEST:
            yield from _properties(inner, depth + 1)


def _schemas(api: Mapping[str, Any]) -> Iterator[Parsed]:
    schemas = _mapping(_mapping(api.get("components")).get("schemas")) or _mapping(api.get("definitions"))
    for name, schema in schemas.items():
        lines = [f"# {name}", _text(_mapping(schema).get("description")), _type(schema)]
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
