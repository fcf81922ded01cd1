"""A worker as a process: socket, lease, signals, graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rolecall.log import SCOPE, scope_of, setup_unless_done
from rolecall.model.ids import is_loopback
from rolecall.system.signals import on_signals
from rolecall.system.sockets import bound_socket
from worker_sdk.config import ServerTls, Token, hub_url, read_settings
from worker_sdk.errors import AuthError, Forbidden
from worker_sdk.lease import url_towards
from worker_sdk.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from worker_sdk.lease import Lease
    from worker_sdk.worker import Worker

log = logging.getLogger("worker_sdk")

TAKEN_OVER, NOT_ALLOWED = 3, 4
INTERRUPTED = 130
_GRACE = 3.0
"""Seconds that open streams get to send their last event after all tasks have ended."""


def run(
    worker: Worker,
    *,
    host: str,
    port: int | None,
    hub: str | None,
    token: Token | None,
    ca_file: str | os.PathLike[str] | None,
    url: str | None,
    tls: ServerTls | None,
) -> None:
    """Run until a signal comes. SystemExit(3) if another process has the name, 4 if the token is refused."""
    try:
        worker.tasks  # noqa: B018  a worker without a handler ends here, with one line
    except TypeError as error:
        raise SystemExit(str(error)) from None
    setup_unless_done(os.environ.get("ROLECALL_LOG_LEVEL") or "info", os.environ.get("ROLECALL_LOG_FORMAT") or "auto")
    code = asyncio.run(serve(worker, host=host, port=port, hub=hub, token=token, ca_file=ca_file, url=url, tls=tls))
    if code:
        raise SystemExit(code)


async def serve(
    worker: Worker,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    hub: str | None = None,
    token: Token | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    url: str | None = None,
    tls: ServerTls | None = None,
    stop: asyncio.Event | None = None,
) -> int:
    """Run on the current event loop until `stop` is set, or without `stop` until a signal comes. Returns the exit code."""
    SCOPE.set(scope_of(worker.name))
    settings = read_settings()
    chosen_hub = hub_url(hub) if hub else settings.hub
    if tls is not None:
        _check(tls)
    listener = _listen(host, port if port is not None else settings.port or 0)
    bound = int(listener.getsockname()[1])
    own_url = url or settings.advertise_url or url_towards(chosen_hub, bound, "http" if tls is None else "https")
    if is_loopback(host) and not is_loopback(urlsplit(own_url).hostname or ""):
        log.warning(
            "%s listens on %s only, but is offered at %s: give --host 0.0.0.0",
            worker.name,
            host,
            own_url,
            extra={"event": "worker_hidden"},
        )
    stopping = stop or asyncio.Event()
    if stop is None:
        _on_signals(stopping.set)
    served = asyncio.Event()
    server = asyncio.create_task(serve_http(worker, listener, served, tls), name=f"server of {worker.name}")
    try:
        log.debug("%s serves at %s", worker.name, own_url, extra={"event": "worker_serves"})
        # Before the server has its first turn: no call comes before the worker knows whom it takes calls from.
        lease = worker.lease(own_url, hub=chosen_hub, token=token, ca_file=ca_file, reachable=_is_reachable(host, own_url))
        with LoopWatchdog(worker.name):
            async with lease:
                code = await _until_stopped(worker, lease, stopping, server)
    finally:
        served.set()
        await _end(server)
    log.debug("%s has ended", worker.name, extra={"event": "worker_ended"})
    return code


def _is_reachable(host: str, url: str) -> bool:
    """By other machines, at its own address or through what the URL names."""
    return not (is_loopback(host) and is_loopback(urlsplit(url).hostname or ""))


async def _end(server: asyncio.Task[None]) -> None:
    """All tasks have ended, so streams end by themselves; a stream whose client does not read is cut."""
    await asyncio.wait([server], timeout=2 * _GRACE)
    server.cancel()
    await asyncio.wait([server])
    if not server.cancelled():
        server.result()


async def _until_stopped(worker: Worker, lease: Lease, stopping: asyncio.Event, server: asyncio.Task[None]) -> int:
    waits = [
        asyncio.create_task(stopping.wait(), name="stop"),
        asyncio.create_task(lease.given_up(), name="given up"),
    ]
    try:
        await asyncio.wait([*waits, server], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if lease.refusal is not None:
        log.error("%s ends: %s", worker.name, lease.refusal, extra={"event": "worker_given_up"})
    await _drain(worker, lease)
    return exit_code(lease)


def exit_code(lease: Lease) -> int:
    """3: another process has the name; 4: the token is not accepted, or may not do this."""
    if lease.refusal is None:
        return 0
    return NOT_ALLOWED if isinstance(lease.refusal, AuthError | Forbidden) else TAKEN_OVER


async def _drain(worker: Worker, lease: Lease) -> None:
    tasks = worker.tasks
    if lease.refusal is None:
        await lease.drain()
    tasks.draining = True
    if tasks.slots.busy:
        text = "%s finishes %s, for at most %g s (a second signal stops at once)"
        running = _counted(tasks.slots.busy, "running task")
        log.info(text, worker.name, running, worker.drain_timeout, extra={"event": "worker_draining"})
    stopped = await tasks.finish(worker.drain_timeout, "The worker was stopped before the task had ended.")
    if stopped:
        log.warning("%s stopped %s", worker.name, _counted(stopped, "unfinished task"), extra={"event": "tasks_stopped"})


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = bound_socket(host, port)
    except OSError as error:
        raise SystemExit(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def _check(tls: ServerTls) -> None:
    """SystemExit: the server could not use it."""
    try:
        # Left to itself OpenSSL asks for the password of an encrypted key on the terminal, and waits.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        problem = "are no certificate and its key in PEM, not encrypted"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            problem = f"cannot be read: {error.strerror}"
        raise SystemExit(f"Cannot serve TLS: {tls.cert} and {tls.key} {problem}.") from error


async def serve_http(worker: Worker, listener: socket.socket, stop: asyncio.Event, tls: ServerTls | None = None) -> None:
    """Serve HTTP on a listening socket until `stop` is set; open streams then get `_GRACE` seconds to end."""
    from hypercorn.asyncio import serve as serve_asgi
    from hypercorn.config import Config

    config = Config()
    # Hypercorn closes its descriptor, so it gets a duplicate, made by the socket: on Windows os.dup knows no sockets.
    config.bind = [f"fd://{listener.dup().detach()}"]
    config.accesslog = config.errorlog = None
    config.keep_alive_timeout = 75
    config.graceful_timeout = _GRACE
    if tls is not None:
        config.certfile, config.keyfile = str(tls.cert), str(tls.key)
        config.alpn_protocols = ["http/1.1"]
    app: Any = worker.app
    try:
        await serve_asgi(_without_lifespan(app), config, shutdown_trigger=stop.wait)
    finally:
        listener.close()


def _without_lifespan(app: Any) -> Any:
    async def only_http(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await app(scope, receive, send)

    return only_http


def _on_signals(stop: Callable[[], None]) -> None:
    """The first signal stops gracefully; the second ends the process at once."""

    def first() -> None:
        log.debug("stopping: taking no new work", extra={"event": "worker_stopping"})
        stop()

    def again() -> None:
        log.warning("stopped at once", extra={"event": "worker_stopped"})
        logging.shutdown()
        os._exit(INTERRUPTED)

    on_signals(first, again)
