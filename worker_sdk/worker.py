"""A worker: a role, a handler, and what connects them to a hub."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from rolecall.log import SCOPE, scope_of
from rolecall.model.a2a import JsonObject
from rolecall.model.card import (
    FILES_EXTENSION,
    JSONRPC,
    PROGRESS_EXTENSION,
    REPLAY_EXTENSION,
    USAGE_EXTENSION,
    Capabilities,
    Extension,
    Interface,
    Profile,
)
from rolecall.protocol.cards import merged
from rolecall.protocol.dialects import own_bindings
from worker_sdk.config import Token, is_here, read_settings, server_tls
from worker_sdk.errors import RolecallError
from worker_sdk.files.hub_files import FILE_THRESHOLD, HubFiles
from worker_sdk.handlers.handler import Handler
from worker_sdk.handlers.skills import Skills
from worker_sdk.lease import Lease, worker_name
from worker_sdk.serve import Receive, Scope, Send, Server
from worker_sdk.tasks.log import MAX_EVENT
from worker_sdk.tasks.task_table import TaskLimits, Tasks

if TYPE_CHECKING:
    from worker_sdk.calling.http import HubLink
    from worker_sdk.files.parts import Files
    from worker_sdk.testing.bench import Bench
    from worker_sdk.testing.hub import TestHub

log = logging.getLogger("worker_sdk")

_Function = TypeVar("_Function", bound=Callable[..., Any])

PLAIN_LIMIT = 32
"""Default `concurrency` of plain functions, because each call takes a thread."""

MAX_BODY = 16 * 1024 * 1024 + 64 * 1024
"""The hub's default, and what the hub adds to a message."""
_LEAST_EVENT = 64 * 1024
_MODES = ("text/plain", "application/json")
_EXTENSIONS = (
    Extension(REPLAY_EXTENSION, "Streams resume exactly from Last-Event-ID."),
    Extension(PROGRESS_EXTENSION, "Status messages tell how far a task is."),
    Extension(USAGE_EXTENSION, "Status updates report what a task has used of language models."),
    Extension(FILES_EXTENSION, "Files at the hub are read by their urls."),
)

_loading: ContextVar[bool] = ContextVar("a worker's module is being loaded", default=False)


@contextmanager
def not_running() -> Iterator[None]:
    """Inside it, `Worker.run` returns at once."""
    before = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(before)


class Worker:
    """Serves one role. It is an ASGI application (`app = worker`); a script only calls `run()`.

    At most `concurrency` handlers run at a time. A call above that is refused, never queued, so that the hub tries another
    instance. None means no limit for async handlers, 32 for plain functions.

    `idempotent`: a call may be made again, although it may have run: `task.call` does so once when the worker is lost.

    A worker that other machines can reach takes calls from its hub alone, by a secret that each process makes and gives to the
    hub. `open`: from anybody.

    `max_body`: bytes of a request. `max_event`: bytes of one event; longer texts are sent in pieces, and other results that do
    not fit are refused. Its hub has settings with the same names. `file_threshold`: larger files are uploaded to the hub, and
    sent by reference; None: all are sent in their event.
    """

    def __init__(
        self,
        role: str,
        *,
        instance: str | None = None,
        description: str = "",
        concurrency: int | None = None,
        labels: Mapping[str, str] | None = None,
        skills: Sequence[Mapping[str, Any]] | None = None,
        models: Sequence[str] = (),
        idempotent: bool = False,
        open: bool = False,
        version: str = "0.1.0",
        max_body: int = MAX_BODY,
        max_event: int = MAX_EVENT,
        file_threshold: int | None = FILE_THRESHOLD,
        drain_timeout: float = 30.0,
        limits: TaskLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError("concurrency is 1 or more, or None")
        if max_event < _LEAST_EVENT:
            raise ValueError(f"max_event is {_LEAST_EVENT} or more")
        self.role, self.instance = worker_name(role, instance)
        self.description = description
        self.concurrency = concurrency
        self.labels = dict(labels or {})
        self.models = tuple(models)
        self.idempotent = idempotent
        self.open = open
        self.version = version
        self.drain_timeout = drain_timeout
        self.file_threshold = file_threshold
        self._skills = Skills(self.role, skills or ())
        self._max_body = max_body
        self._max_event = max_event
        self._limits = limits or TaskLimits()
        self._monotonic = monotonic
        self._tasks: Tasks | None = None
        self._server: Server | None = None
        self._lease: Lease | None = None
        self.test_hub: TestHub | None = None
        """In place of the hub, in a test."""
        self.url: str | None = None
        """Where callers reach the worker, once that is known."""

    @property
    def name(self) -> str:
        return f"{self.role}:{self.instance}"

    def on_message(self, function: _Function) -> _Function:
        """Decorator that sets the handler. The docstring of the package lists the forms that a handler can have."""
        if self._skills.on_message is not None:
            raise TypeError(f"{self.role} has a handler already")
        handler = Handler(function)
        self._skills.on_message = handler
        self.description = self.description or handler.description
        self._limit_plain()
        return function

    def skill(
        self, id: str, *, name: str | None = None, description: str = "", tags: Sequence[str] = (), examples: Sequence[str] = ()
    ) -> Callable[[_Function], _Function]:
        """Decorator of a handler for calls with that `metadata.skill`. A call that names no skill goes to `on_message`, or to
        the only handler. The rest is for the card; `description` is the function's docstring by default.
        """
        members: JsonObject = {"description": description, "examples": list(examples)}
        members |= ({"name": name} if name else {}) | ({"tags": list(tags)} if tags else {})

        def decorate(function: _Function) -> _Function:
            self._skills.add(id, Handler(function), members)
            self._limit_plain()
            return function

        return decorate

    @property
    def tasks(self) -> Tasks:
        """The worker's tasks, created at the first use, when the handler is known."""
        if self._tasks is None:
            if not self._skills:
                raise TypeError(f"{self.role} has no handler: decorate a function with @worker.on_message")
            self._tasks = Tasks(
                self._skills,
                name=self.name,
                concurrency=self.concurrency,
                limits=self._limits,
                max_event=self._max_event,
                monotonic=self._monotonic,
                link=self._link_within,
                files=self._files_within,
            )
        return self._tasks

    def card(self, url: str) -> JsonObject:
        """The A2A card, for callers of either version that reach the worker at `url`."""
        address = self.url or url
        return merged(
            Profile(
                name=self.role,
                description=self.description or self.role,
                version=self.version,
                interfaces=tuple(
                    Interface(address, JSONRPC, dialect) for dialect, binding in own_bindings() if binding == JSONRPC
                ),
                capabilities=Capabilities(streaming=True, extensions=_EXTENSIONS),
                skills=self._skills.on_card(self.description),
                input_modes=_MODES,
                output_modes=_MODES,
            )
        )

    def lease(
        self,
        url: str,
        *,
        hub: str | None = None,
        token: Token | None = None,
        ca_file: str | PathLike[str] | None = None,
        reachable: bool | None = None,
    ) -> Lease:
        """A lease that offers this worker at `url`. Enter it with `async with`. `reachable`: other machines can connect to the
        worker; None: if the url is not this machine's own. Then the app takes calls from the hub of the lease alone, unless
        the worker is `open`.
        """
        self.url = url
        if reachable is None:
            reachable = not is_here(urlsplit(url).hostname or "")
        self.app.authorization = f"Bearer {secrets.token_urlsafe(32)}" if reachable and not self.open else ""
        if reachable and self.open:
            log.warning(
                "%s is open: it takes calls from anybody who can connect to it, around its hub's tokens",
                self.name,
                extra={"event": "worker_open"},
            )
        self._lease = Lease(
            self.role,
            self.instance,
            url=url,
            hub=hub,
            token=token,
            ca_file=ca_file,
            card=self.card(url),
            description=self.description,
            capacity=self.concurrency,
            labels=self.labels,
            models=self.models,
            idempotent=self.idempotent,
            authorization=self.app.authorization or None,
            in_flight=lambda: self.tasks.slots.busy,
        )
        return self._lease

    def _link_within(self, task: str, *words: str, headers: Mapping[str, str]) -> HubLink:
        """RolecallError: the worker is not enrolled."""
        if self.test_hub is not None:
            return self.test_hub.link_within(task, *words, headers=headers)
        if self._lease is None:
            raise RolecallError(f"{self.name} is not enrolled, so it can call nobody.")
        return self._lease.link_within(task, *words, headers=headers)

    def _files_within(self, task: str) -> Files | None:
        """None: there is no hub, or it stores no files."""
        if self.test_hub is not None:
            return self.test_hub.files_of(self)
        lease = self._lease
        if lease is None or lease.store is None or not task:
            return None
        link = lease.link_within(task, headers={})
        return HubFiles(link, store=lease.store, threshold=self.file_threshold, waits=True)

    @property
    def app(self) -> Server:
        """The ASGI application without lifespan: it serves, but does not enrol. Without a lease it is open."""
        if self._server is None:
            self._server = Server(self.tasks, self.card, max_body=self._max_body)
        return self._server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Under another server it enrols only if ROLECALL_ADVERTISE_URL gives its address."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self.app(scope, receive, send)

    def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        hub: str | None = None,
        token: Token | None = None,
        ca_file: str | PathLike[str] | None = None,
        url: str | None = None,
        tls_cert: str | PathLike[str] | None = None,
        tls_key: str | PathLike[str] | None = None,
    ) -> None:
        """Serve, enrol and send heartbeats until a signal comes; then drain and return. Exit code 3: another process took
        the name. `tls_cert`, `tls_key` (ROLECALL_WORKER_TLS_CERT, ROLECALL_WORKER_TLS_KEY): PEM files, to serve https.
        """
        if _loading.get():
            return
        from worker_sdk.run import run

        run(self, host=host, port=port, hub=hub, token=token, ca_file=ca_file, url=url, tls=server_tls(tls_cert, tls_key))

    def test(self, roles: Mapping[str, Worker] | None = None) -> Bench:
        """`async with worker.test() as t: reply = await t.send("hi")`: the handler alone, without a port or a hub. `roles`: the
        workers that it can call, which run in memory too.
        """
        from worker_sdk.testing.bench import Bench

        return Bench(self, roles)

    def rename(self, name: str, instance: str | None = None) -> None:
        """Replace the name given in the code by `role` or `role:instance`. Call it before the worker runs."""
        self.role, self.instance = worker_name(name, instance)
        self._skills.role = self.role
        self.reset()

    def reset(self) -> None:
        """Forget all tasks. For tests."""
        self._tasks = self._server = self.test_hub = None

    def _limit_plain(self) -> None:
        if self.concurrency is None and self._skills.any_plain:
            self.concurrency = PLAIN_LIMIT

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        SCOPE.set(scope_of(self.name))
        await receive()
        url = read_settings().advertise_url
        if url is None:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        else:
            async with self.lease(url) as lease:
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await lease.drain()
                await self.tasks.finish(self.drain_timeout, "The worker was stopped.")
        await send({"type": "lifespan.shutdown.complete"})
