"""The hub as a process: its socket, its server, signals, and the drain before it ends."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any, NamedTuple

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.config import Config
from hypercorn.utils import LifespanFailureError
from quart import Quart

from hub.app import Wrap, check_agents, create_app, parts_of, problems_of, refusals, unchanged
from hub.core.observe import Observer
from hub.core.shares.descriptors import Descriptors
from hub.descriptors import out_of_descriptors, raise_limit, refused_at_once
from hub.inbound.middleware.refusal import refusal_of
from hub.parts import Rolecall
from hub.server.http_server import HttpServer
from hub.server.tls import HTTP_1, HTTP_2, Certificate
from hub.settings.agents import AgentSetting
from hub.settings.model import Settings
from hub.storage.sqlite.connections.library import count_no_memory
from rolecall import __version__
from rolecall.build import build
from rolecall.errors import ConfigError
from rolecall.schema import newest
from rolecall.system.signals import END, on_each
from rolecall.system.sockets import bound_socket

log = logging.getLogger(__name__)

_BACKLOG = 2048
_ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000
_MAPPED_ABOVE, _LARGE_BLOCK = -3, 256 * 1024
"""The option's number in glibc, and what it is set to."""


Agents = Sequence[AgentSetting]


class Reload(NamedTuple):
    """`due` is set when the agents of the file are to be read again."""

    due: asyncio.Event
    read_agents: Callable[[], Agents]


def run(
    settings: Settings,
    *,
    agents: Agents = (),
    read_agents: Callable[[], Agents] | None = None,
    ready: Callable[[str], None] | None = None,
    wrap: Wrap = unchanged,
) -> None:
    """Serve in this process until a signal ends it. `read_agents`: reads those of the file again, at SIGHUP, which Windows does
    not have.
    """

    async def main() -> None:
        stop = asyncio.Event()
        reload = Reload(asyncio.Event(), read_agents) if read_agents is not None else None
        on_each(END, stop.set)
        if reload is not None:
            on_each(("SIGHUP",), reload.due.set)
        await serve(settings, agents=agents, reload=reload, stop=stop, ready=ready, wrap=wrap)

    with asyncio.Runner(loop_factory=_loop_factory(settings.loop)) as runner:
        runner.run(main())


async def serve(
    settings: Settings,
    *,
    agents: Agents = (),
    reload: Reload | None = None,
    stop: asyncio.Event,
    ready: Callable[[str], None] | None = None,
    wrap: Wrap = unchanged,
) -> None:
    """Serve until `stop` is set, then drain. `ready` gets the URL of the hub."""
    descriptors = Descriptors(raise_limit())
    count_no_memory()
    asyncio.get_running_loop().set_exception_handler(partial(_on_loop_error, descriptors))
    certificate = _certificate(settings)
    with open_listener(settings.host, settings.port, settings.reader_patience) as listener:
        port = int(listener.getsockname()[1])
        app = create_app(settings, port=port, agents=agents, wrap=wrap, descriptors=descriptors)
        async with _lifespan(app):
            rolecall = parts_of(app)
            http_server = HttpServer(
                app.asgi_app,  # the middleware: one call less for each request than through the application
                rolecall.observer,
                refusal_of,
                limit=rolecall.max_connections,
                refused_at_once=refused_at_once(rolecall.max_connections),
                patience=settings.reader_patience,
                max_head=settings.max_head,
                certificate=certificate,
            )
            configure_collector()
            return_large_blocks()
            if reload is not None:
                rolecall.supervisor.keep_running("reload", partial(_reload, reload, settings, rolecall))
            async with _timers(http_server, certificate, rolecall.observer):
                await http_server.open(listener, backlog=_BACKLOG)
                if ready is not None:
                    ready(settings.url(port))
                log.info("ready", extra={"event": "ready", "url": settings.url(port), **_facts_of(settings)})
                await stop.wait()
                log.info("shutting down", extra={"event": "draining", "tasks": len(rolecall.hub.relays)})
                rolecall.drain()
                await http_server.close(settings.drain)


def check(settings: Settings, agents: Agents = ()) -> None:
    """ConfigError: all that `serve` would refuse, or warn of and ignore. It changes nothing."""
    problems = [*problems_of(settings, agents), *refusals(lambda: _certificate(settings))]
    if problems:
        raise ConfigError(problems)


def _facts_of(settings: Settings) -> dict[str, object]:
    """Which hub this is, for its log."""
    state = {"data_dir": str(settings.data_dir), "schema": newest()} if settings.store == "sqlite" else {}
    return {"version": __version__, "build": build(), "store": settings.store, **state}


async def _reload(reload: Reload, settings: Settings, rolecall: Rolecall) -> None:
    """Run forever: hold the agents of the file whenever it is to be read again. While it is wrong, those before stay."""
    while True:
        await reload.due.wait()
        reload.due.clear()
        try:
            agents = await asyncio.to_thread(reload.read_agents)
            check_agents(settings, agents)
        except ConfigError as error:
            log.error("agents not read again", extra={"event": "agents_not_read", "why": " ".join(error.problems)})
            continue
        rolecall.agents.hold(agents)
        log.info("agents read again", extra={"event": "agents_read", "agents": len(agents)})


def _certificate(settings: Settings) -> Certificate | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key, (HTTP_2, HTTP_1) if settings.http2 else (HTTP_1,))


@asynccontextmanager
async def _timers(http_server: HttpServer, certificate: Certificate | None, observer: Observer) -> AsyncIterator[None]:
    """What watches the time while the server runs."""
    tasks = [asyncio.create_task(http_server.keep_time(), name="connection timers")]
    if certificate is not None:

        def shown() -> None:
            observer.certificate(certificate.validity.not_after)

        shown()
        tasks.append(asyncio.create_task(certificate.keep_current(loaded=shown), name="certificate"))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def _lifespan(app: Quart) -> AsyncIterator[None]:
    """The application's lifespan. An error that stops its start is raised as it is, without Hypercorn's report around it."""
    config = Config()
    config.startup_timeout = inf  # a hub that takes up many tasks starts slowly
    lifespan = Lifespan(ASGIWrapper(app), config, asyncio.get_running_loop(), {})
    running = asyncio.create_task(lifespan.handle_lifespan(), name="lifespan")
    try:
        await lifespan.wait_for_startup()
        if running.done():
            await running
        try:
            yield
        finally:
            await lifespan.wait_for_shutdown()
            await running
    except LifespanFailureError as failure:
        raise failure.__context__ or failure from None


def configure_collector() -> None:
    """Exclude what exists now from garbage collection: it stays. Collect rarely, since hardly any object of a call is part of a
    cycle: reference counts free them.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(0.001)
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS, 20, 20)


def return_large_blocks() -> None:
    """Have the C library give large blocks back to the system when they are freed. Left to itself, it keeps more and more of
    them after the first, and one burst of large messages would stay in the hub's size for ever. Other libraries have no need.
    """
    try:
        ctypes.CDLL(None).mallopt(_MAPPED_ABOVE, _LARGE_BLOCK)
    except (OSError, AttributeError, TypeError):
        log.debug("memory is left to the C library", extra={"event": "no_mallopt"})


def _on_loop_error(descriptors: Descriptors, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the server does not handle: a connection that the system cut because its peer took no data, and one for which
    there was no descriptor.
    """
    error = context.get("exception")
    if out_of_descriptors(error):
        descriptors.none_left("a connection to the hub")
        return
    if isinstance(error, ConnectionError) and "handle" in context:
        # On Windows, asyncio ends a connection that its peer has reset with an error of its own.
        log.debug("connection was reset", extra={"event": "line_reset"})
    elif isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
        log.info("connection cut", extra={"event": "line_cut", "why": "its peer took no data for too long"})
    else:
        loop.default_exception_handler(context)


def open_listener(host: str, port: int, patience: float) -> socket.socket:
    """Bound before anything else is opened, so that a port in use is reported first. The system cuts a connection whose peer
    takes no data for `patience` seconds: the server itself would wait until all is sent. By hand, because Hypercorn's sockets
    stay open when their port is in use.
    """
    listener = bound_socket(host, port)
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
    listener.setblocking(False)
    return listener


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError as error:
        if choice == "uvloop":
            raise ConfigError(["loop: uvloop is not installed; there is none for Windows. Use auto or asyncio."]) from error
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
