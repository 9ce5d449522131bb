"""Errors as callers see them: problem details (RFC 9457), or on the OpenAI endpoints OpenAI's error
object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from aiohttp import web

from contextrouter.errors import AllSourcesFailed, ContextRouterError, RequestRefused
from contextrouter.runtime.masking import mask
from contextrouter.serialization import plain

MEDIA = "application/problem+json"
FAULT = "A fault of this server. Its log has more under this request id."


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, after RFC 9457. `code` names the kind of problem, `coverage` says how each source
    failed.
    """

    type: Annotated[str, msgspec.Meta(description="always about:blank; `code` tells problems apart")] = ""
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    coverage: Sequence[Any] = ()


class ChatError(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ChatProblem(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object."""

    error: ChatError


class Refused(Exception):
    """A request that is not answered: the status, a word for a program, a sentence for a person."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
        coverage: Sequence[Any] = (),
    ) -> None:
        self.status, self.code, self.detail, self.param = status, code, detail, param
        self.headers, self.coverage = dict(headers or {}), coverage
        super().__init__(detail)


def refused(error: BaseException, secrets: Sequence[str] = ()) -> Refused | None:
    """What to tell the caller of an error; None: a fault of this program."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    if isinstance(error, RequestRefused):
        return Refused(422, "refused", mask(error.reason, secrets))
    if isinstance(error, AllSourcesFailed):
        detail = f"Every source failed; {len(error.reports)} calls made."
        return Refused(
            502, "all_sources_failed", detail, coverage=[plain(report) for report in error.reports]
        )
    if isinstance(error, ContextRouterError):
        return Refused(502, "plugin_failed", mask(str(error), secrets))
    if isinstance(error, TimeoutError):
        return Refused(504, "timeout", "The answer was not ready in time.")
    return None


def _of_http(error: web.HTTPException) -> Refused:
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return Refused(413, "body_too_large", "The body is longer than [serve] max_body_bytes allows.")
    details = {
        404: "There is nothing here; /openapi.json lists what there is.",
        405: "This path does not know the method.",
    }
    phrase = HTTPStatus(error.status).phrase
    return Refused(
        error.status,
        phrase.lower().replace(" ", "_"),
        details.get(error.status, f"{phrase}."),
        headers=headers,
    )


def body_of(refusal: Refused, request_id: str) -> dict[str, Any]:
    """The problem details of a refusal."""
    title = HTTPStatus(refusal.status).phrase
    problem = Problem(
        title=title,
        status=refusal.status,
        detail=refusal.detail,
        code=refusal.code,
        request_id=request_id,
        coverage=refusal.coverage,
    )
    return {"type": "about:blank", **msgspec.to_builtins(problem)}


def chat_body_of(refusal: Refused) -> dict[str, Any]:
    """OpenAI's error object of a refusal."""
    kinds = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
    }
    kind = kinds.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
    error = ChatError(message=refusal.detail, type=kind, param=refusal.param, code=refusal.code)
    built: dict[str, Any] = msgspec.to_builtins(ChatProblem(error=error))
    return built
