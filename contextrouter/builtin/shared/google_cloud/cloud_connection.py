"""Connections to Google Cloud services: imports, credentials and channels, and calls with a deadline.

All that is heavy happens in `open()`, in a thread. A channel belongs to the event loop and the process that
made it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from contextrouter.builtin.shared.google_cloud.cloud_errors import RENEW, Target, explain
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions
from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer
from contextrouter.errors import ContractError, MissingDependency, PluginError, SourceError, SourceTimeout
from contextrouter.runtime.threads import work_aside

T = TypeVar("T")
EXTRA = "vertex"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_TOKEN_SECONDS = 5.0  # for one exchange with the server of tokens
_CHANNEL = (("grpc.max_receive_message_length", 64_000_000),)


class Service(NamedTuple):
    """A Google service: its name in messages, distribution, module, host, and the role its callers need."""

    name: str
    package: str
    module: str
    host: str
    role: str
    missing: str = ""  # what else helps where a resource is missing


class CloudConnection:
    """One channel to one service. `label` names the plugin in messages.

    `of_source`: errors are SourceErrors, as sources raise them; else PluginErrors.
    """

    def __init__(
        self, service: Service, options: CloudOptions, label: str, *, of_source: bool = False
    ) -> None:
        self.service, self.options, self.label = service, options, label
        self.resource = ""  # set when the project is known
        self.project = ""
        self.server: GrpcServer | None = None  # of an example
        self._of_source = of_source
        self._channel: Any = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a channel."""
        return self._channel is not None

    @property
    def at_home(self) -> bool:
        """Whether there is a channel, and this is the event loop and the process that made it."""
        return self._channel is not None and self._home == (os.getpid(), asyncio.get_running_loop())

    async def open(self) -> None:
        """Import the client, load the credentials, make the channel; nothing is asked of the service.

        Raises MissingDependency without the extra, PluginError without a project or working credentials.
        """
        if find_module(self.service.module) is None:
            raise MissingDependency(self.service.package, EXTRA, what=self.label)
        await work_aside(importlib.import_module, self.service.module)
        options = self.options
        if self.server is not None:
            options = options._replace(endpoint=f"127.0.0.1:{await self.server.listen()}")
        address, secure = options.address(self.service.host)
        import grpc

        if secure:
            credentials, project = await self._credentials()
            from google.api_core.grpc_helpers_async import create_channel

            make = partial(create_channel, address, credentials=credentials, options=_CHANNEL)
        else:
            project = "example" if self.server is not None else None
            make = partial(grpc.aio.insecure_channel, address, options=_CHANNEL)
        self.project = options.find_project(project)
        self._channel = make()
        self._home = (os.getpid(), asyncio.get_running_loop())

    async def aclose(self) -> None:
        """Close the channel, and the server of an example."""
        at_home, channel = self.at_home, self._channel
        self._channel = self._home = None
        if at_home:
            await channel.close()
        if self.server is not None:
            await self.server.aclose()

    def client(self, name: str) -> Any:
        """Return the asynchronous client of a service module such as `data_object_service`."""
        self.check_home()
        module = importlib.import_module(f"{self.service.module}.services.{name}")
        prefix = "".join(part.title() for part in name.split("_"))
        transport = getattr(module.transports, f"{prefix}GrpcAsyncIOTransport")
        return getattr(module, f"{prefix}AsyncClient")(transport=transport(channel=self._channel))

    async def call(
        self,
        method: Callable[..., Awaitable[T]],
        request: Any,
        *,
        deadline: float | None = None,
        instead: Mapping[str, Any] = {},
        answers: bool = True,
    ) -> T:
        """Make one call, once, with what is left of the time as its limit on the wire.

        `instead` maps names of errors, such as NotFound, to answers in their place. `answers` False: the
        method has no answer. Raises SourceTimeout, SourceError or PluginError.
        """
        self.check_home()
        from google.api_core.timeout import ConstantTimeout

        remaining = self.time_left(deadline)
        try:
            # The client's own default repeats a failed call for minutes, and limits one attempt only.
            answer = await method(request, timeout=ConstantTimeout(remaining), retry=None)
        except Exception as error:
            if (name := type(error).__name__) in instead:
                substitute: T = instead[name]
                return substitute
            # The chain is cut: the client's own exceptions carry the request and with it the credentials.
            raise self.explain_error(error, remaining) from None
        # The client turns a message that it cannot read into None, alone or inside a pager.
        if answers and getattr(answer, "_response", answer) is None:
            raise self.answer_error("sent an answer that cannot be read")
        return answer

    def time_left(self, deadline: float | None) -> float:
        """Return the seconds that a call may take. Raises SourceTimeout where there are none."""
        limit = self.options.request_timeout
        remaining = limit if deadline is None else min(limit, deadline - monotonic())
        if remaining <= 0:
            raise SourceTimeout(f"{self.service.name} was not asked: no time was left.")
        return remaining

    def explain_error(self, error: Exception, seconds: float) -> PluginError:
        """Return the error of a failed call with its remedy. What is no failure of a call is returned as it
        is.
        """
        import grpc
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        if isinstance(error, PluginError):
            return error
        types = (GoogleAPIError, GoogleAuthError, grpc.RpcError, grpc.aio.UsageError, TimeoutError)
        if not isinstance(error, types):
            return self.answer_error(f"answered in another form than it should ({type(error).__name__})")
        service = self.service
        target = Target(service.name, self.resource or service.name, service.role, service.missing)
        failure = explain(error, target, seconds)
        return self._make_error(failure.message, failure.late, exhausted=failure.exhausted)

    def late(self, message: str) -> PluginError:
        """Return the error of what did not come in time."""
        return self._make_error(message, late=True)

    def answer_error(self, problem: str, remedy: str = "") -> PluginError:
        """Return the error of an answer that cannot be used."""
        return self._make_error(f"{self.service.name} {problem}.{' ' if remedy else ''}{remedy}", late=False)

    def _make_error(self, message: str, late: bool, *, exhausted: bool = False) -> PluginError:
        cls: type[PluginError] = PluginError
        if self._of_source:
            cls = SourceTimeout if late else SourceError
        error = cls(message)
        error.exhausted = exhausted
        return error

    def check_home(self) -> None:
        """Raise ContractError before `open()`, and in another event loop or process than that of `open()`."""
        if self._channel is None:
            raise ContractError(f"{self.label} is not open. Call open() first.", law="opened before use")
        if not self.at_home:
            raise ContractError(
                f"{self.label} was opened in another event loop or process. Close it there and open it here.",
                law="one event loop",
            )

    async def _credentials(self) -> tuple[Any, str | None]:
        """Return refreshed credentials, and their project. The first call would pay for the refresh."""
        try:
            return await work_aside(load_credentials, self.options.credentials_file)
        except PluginError:
            raise
        except Exception as error:  # of any type; its words may hold parts of a key
            place = self.options.credentials_file or "application default credentials"
            problem = f"was not asked: the credentials do not work ({type(error).__name__}: {place})"
            raise self.answer_error(problem, f"{RENEW}.") from None


def find_module(name: str) -> object | None:
    """Return the specification of a module; None where it, or a package above it, is not installed."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


def load_credentials(path: str) -> tuple[Any, str | None]:
    """Load credentials from a file, or where Google's libraries look for them, and get a first token.

    It reads files and may ask a server: call it in a thread. Raises PluginError for a file of another kind.
    """
    import google.auth
    from google.auth.transport.requests import Request

    if path:
        credentials, project = _from_file(path)
    else:
        credentials, project = google.auth.default(scopes=list(SCOPES))
    if not credentials.valid:
        credentials.refresh(partial(Request(), timeout=_TOKEN_SECONDS))
    return credentials, project


def _from_file(path: str) -> tuple[Any, str | None]:
    from google.auth import aws, identity_pool, impersonated_credentials
    from google.oauth2 import credentials, service_account

    if "{" in path or "-----BEGIN" in path:  # not shown: it may be the key
        raise PluginError("credentials_file holds a key itself. Name the JSON file that holds it.")
    try:
        with open(path, encoding="utf-8") as file:
            info = json.load(file)
        kind = str(info["type"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PluginError(
            f"credentials_file {path!r} cannot be read as credentials ({type(error).__name__}). Name the JSON"
            " file of a service account."
        ) from None
    scopes: Sequence[str] = list(SCOPES)
    makers: dict[str, Callable[[], Any]] = {
        "service_account": lambda: service_account.Credentials.from_service_account_info(info, scopes=scopes),
        "authorized_user": lambda: credentials.Credentials.from_authorized_user_info(info, scopes),
        "external_account": lambda: (
            aws if "environment_id" in info["credential_source"] else identity_pool
        ).Credentials.from_info(info, scopes=scopes),
        "impersonated_service_account": lambda: (
            impersonated_credentials.Credentials.from_impersonated_service_account_info(info, scopes=scopes)
        ),
    }
    if kind not in makers:
        raise PluginError(
            f"credentials_file {path!r} holds credentials of the type {kind!r}. Known types:"
            f" {', '.join(makers)}. For others set GOOGLE_APPLICATION_CREDENTIALS instead."
        )
    return makers[kind](), info.get("project_id")
