"""Errors of Google Cloud calls as messages that name the remedy: quota, role, credentials, resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from contextrouter.runtime.masking import mask

LONGEST = 300  # characters of a service's own message
_DAILY = re.compile(r"(?i)per[\s_-]?day|daily|\b1/d\b|\bday\b")
_TOO_LARGE = "essage larger than max"
_TOKEN_FAILED = "Getting metadata from plugin failed"  # noqa: S105 - how gRPC reports credentials that cannot be refreshed
RENEW = (
    "Renew them: `gcloud auth application-default login`, or name the key file of a service account in"
    " `credentials_file` or GOOGLE_APPLICATION_CREDENTIALS"
)


class Target(NamedTuple):
    """What is asked, for messages: the service, the resource, and the role that a caller needs."""

    service: str
    resource: str
    role: str
    remedy: str = ""  # where the resource is missing, beside the check of its name


class Failure(NamedTuple):
    """Why a call failed, and how to mend it. `late`: no answer in time; `exhausted`: asking again soon is
    useless.
    """

    message: str
    late: bool = False
    exhausted: bool = False


def explain(error: Exception, target: Target, seconds: float = 0.0) -> Failure:
    """Say what a failed call means. `seconds` is the time that it had."""
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    words = _own_words(error)
    if isinstance(error, exceptions.DeadlineExceeded | TimeoutError):
        return Failure(f"{target.service} did not answer within {seconds:.2f} s.", late=True)
    if isinstance(error, GoogleAuthError) or _TOKEN_FAILED in words:
        return Failure(f"{target.service} was not asked: the credentials do not work. {RENEW}.")
    if isinstance(error, exceptions.ResourceExhausted):
        return _quota(error, target, words)
    return Failure(f"{target.service} {_problem(error, target, words)}")


def _quota(error: Any, target: Target, words: str) -> Failure:
    if _TOO_LARGE in words:  # gRPC has one status for both
        return Failure(f"{target.service}: a message is too large ({words}). Cut texts into smaller pieces.")
    console = "Raise it in the console (IAM & Admin, Quotas)"
    if _DAILY.search(" ".join((words, *_details(error)))):
        message = f"{target.service}: the daily quota is used up ({words}). {console}, or wait for tomorrow."
        return Failure(message, exhausted=True)
    return Failure(f"{target.service}: the quota is used up ({words}). {console}, or ask less often.")


def _problem(error: Exception, target: Target, words: str) -> str:
    from google.api_core import exceptions

    if isinstance(error, exceptions.Unauthenticated):
        return f"refuses the credentials ({words}). {RENEW}."
    if isinstance(error, exceptions.PermissionDenied):
        return (
            f"does not allow it ({words}). Give the account of the credentials the role {target.role}"
            " in the project, and enable the API."
        )
    if isinstance(error, exceptions.NotFound):
        return f"has no {target.resource!r} ({words}). Check project, location and name{target.remedy}."
    if isinstance(error, exceptions.ServiceUnavailable):
        return f"is not reachable now ({words}). It is asked again with the next question."
    if isinstance(error, exceptions.InvalidArgument | exceptions.FailedPrecondition):
        return f"refuses the request ({words})."
    return f"failed: {type(error).__name__}: {words}."


def _own_words(error: Exception) -> str:
    """The service's own words, in one line, without secrets."""
    text = mask(str(getattr(error, "message", None) or error or type(error).__name__))
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _details(error: Any) -> Iterator[str]:
    """The names and limits of a quota, which a service gives beside its message."""
    yield str(getattr(error, "reason", "") or "")
    for value in (getattr(error, "metadata", None) or {}).values():
        yield str(value)
