"""The OpenAPI document, made from the table of endpoints and from the types that validate requests."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from contextrouter.model import SourceReport
from contextrouter.server.endpoints import EVENTS, Endpoint, Exchange, json_response
from contextrouter.server.error_responses import MEDIA, ChatProblem, Problem
from contextrouter.server.request_schema import schema_type

_REF = "#/components/schemas/{name}"
_ABOUT = (
    "Questions in, numbered context out. Where keys are set every path but /healthz, /readyz, /openapi.json"
    " and /explorer needs one. Each answer carries X-Request-Id; send one of your own to find it in the logs."
)


_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string", "description": "JSON, or [DONE]"}},
}


async def get_openapi(exchange: Exchange) -> web.StreamResponse:
    """GET /openapi.json."""
    return json_response(openapi_document(exchange.server.endpoints))


DESCRIPTION = Endpoint(
    method="GET",
    path="/openapi.json",
    handle=get_openapi,
    summary="This document",
    guarded=False,
    media="application/json",
)


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Make the OpenAPI document of endpoints."""
    from contextrouter import __version__  # not at the top: the package need not know its own server

    endpoints = [endpoint for endpoint in endpoints if endpoint.described]
    types = [body for e in endpoints for body in (e.body, e.answer) if body is not None]
    types += [Problem, ChatProblem, schema_type(SourceReport)]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=_REF)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "contextrouter", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _name(endpoint),
        "responses": _responses(endpoint),
    }
    if endpoint.path.endswith("}"):
        name = endpoint.path.rpartition("{")[2].rstrip("}")
        schema = {"type": "string", "minLength": 1}
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": schema}]
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": _ref(endpoint.body)}
        if endpoint.example:
            content["example"] = endpoint.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    if endpoint.guarded:
        operation["security"] = [{}, {"key": []}]
    return operation


def _name(endpoint: Endpoint) -> str:
    return endpoint.method.lower() + "".join(
        part.strip("{}").title() for part in endpoint.path.replace(".", "/").split("/")
    )


def _ref(schema: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=schema.__name__)}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {
        endpoint.media: {"schema": _ref(endpoint.answer) if endpoint.answer else _any(endpoint)}
    }
    description = endpoint.summary
    if endpoint.streams:
        content[EVENTS] = {"schema": _EVENT}
        description += f". With stream: {endpoint.streams}"
    responses: dict[str, Any] = {"200": {"description": description, "content": content}}
    for status in sorted({*endpoint.errors, *((401, 403) if endpoint.guarded else ()), 500}):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": _error(endpoint, status),
        }
    return responses


def _any(endpoint: Endpoint) -> dict[str, str]:
    return {"type": "object" if endpoint.media == "application/json" else "string"}


def _error(endpoint: Endpoint, status: int) -> dict[str, Any]:
    if status == HTTPStatus.SERVICE_UNAVAILABLE and not endpoint.guarded:
        return {"application/json": {"schema": _ref(endpoint.answer) if endpoint.answer else {}}}
    if endpoint.openai:
        return {"application/json": {"schema": _ref(ChatProblem)}}
    return {MEDIA: {"schema": _ref(Problem)}}
