"""Schemas of MCP tools: strict in what they take, and plain in what they say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import create_model, model_validator
from pydantic_core import PydanticCustomError

from contextrouter.settings.suggestions import unknown

READS_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


def strict_tool(function: Callable[..., Any], title: str) -> Tool:
    """Return a tool that refuses an argument it does not have: a misspelt one would be no demand at all."""
    tool = Tool.from_function(function, title=title, annotations=READS_ONLY)
    lenient = tool.fn_metadata.arg_model
    names = [field.alias or name for name, field in lenient.model_fields.items()]

    def check_names(arguments: Any) -> Any:
        for name in arguments if isinstance(arguments, dict) else ():
            if name not in names:
                message = unknown(f"{name!r:.80} is no argument", str(name), names, "Arguments")
                raise PydanticCustomError("unknown_argument", "{message}", {"message": message})
        return arguments

    validator: Any = model_validator(mode="before")(check_names)
    strict = create_model(lenient.__name__, __base__=lenient, __validators__={"check_names": validator})
    strict.model_config["extra"] = "forbid"
    strict.model_rebuild(force=True)
    tool.fn_metadata.arg_model = strict
    schema = strict.model_json_schema(by_alias=True)
    tool.parameters = plain_schema(schema, schema.get("$defs", {}))
    return tool


def plain_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that every client of agents reads: an optional argument is one that is not
    required, no schema refers to another, and nothing has a title beside its name.
    """
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        return plain_schema({**named, **{k: v for k, v in schema.items() if k != "$ref"}}, definitions)
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        others = {key: value for key, value in schema.items() if key != "anyOf"}
        return plain_schema({**choices[0], **others}, definitions)
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("title", "$defs") or (key == "default" and value is None):
            continue
        if key == "properties":
            plain[key] = {name: plain_schema(part, definitions) for name, part in value.items()}
        elif key == "items" and isinstance(value, Mapping):
            plain[key] = plain_schema(value, definitions)
        else:
            plain[key] = value
    return plain
