"""Error responses: problem details (RFC 9457), or OpenAI's error object on OpenAI-compatible endpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from contextrouter.errors import AllSourcesFailed, ContextRouterError, RequestRefused
from contextrouter.runtime.masking import mask
from contextrouter.serialization import plain, shorten_query

MEDIA = "application/problem+json"
FAULT = "A fault of this server. Its log has more under this request id."


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Problem details (RFC 9457). `code` names its kind, `coverage` says how each source failed."""

    type: Annotated[str, msgspec.Meta(description="always about:blank; `code` tells problems apart")] = ""
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    trace_id: str = ""
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
    """A refused request: the HTTP status, a code for programs and a sentence for people."""

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


def make_refusal(error: BaseException, secrets: Sequence[str] = ()) -> Refused | None:
    """Turn an error into the refusal for the caller; None: the error is a fault of this program."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestRefused):
        reason = mask(error.reason, secrets)
        if error.retry_after is not None:
            seconds = str(max(1, math.ceil(error.retry_after)))
            return Refused(429, "refused", reason, headers={"Retry-After": seconds})
        return Refused(403 if error.interpreter else 422, "refused", reason)
    if isinstance(error, AllSourcesFailed):
        detail = f"Every source failed; {len(error.reports)} calls made."
        coverage = [plain(shorten_query(report)) for report in error.reports]
        return Refused(502, "all_sources_failed", detail, coverage=coverage)
    if isinstance(error, ContextRouterError):
        return Refused(502, "plugin_failed", mask(str(error), secrets))
    if isinstance(error, TimeoutError):
        return Refused(504, "timeout", "The answer was not ready in time.")
    return None


def problem_body(refusal: Refused, request_id: str, trace_id: str = "") -> dict[str, Any]:
    """Return the problem details of a refusal."""
    title = HTTPStatus(refusal.status).phrase
    problem = Problem(
        title=title,
        status=refusal.status,
        detail=refusal.detail,
        code=refusal.code,
        request_id=request_id,
        trace_id=trace_id,
        coverage=refusal.coverage,
    )
    return {"type": "about:blank", **msgspec.to_builtins(problem)}


def openai_error_body(refusal: Refused) -> dict[str, Any]:
    """Return a refusal as OpenAI's error object."""
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
