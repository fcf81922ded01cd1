"""The composition root: makes every part and passes it to the parts that need it."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config as ServerConfig

from hub.clock import TICK, WakingClock
from hub.core.admission.quota import WorkspaceQuota
from hub.core.hub import Hub, HubLimits
from hub.core.push.configs import PushConfigs
from hub.core.push.deliveries import Deliveries, DeliveryPolicy
from hub.core.registry.directory import Directory, LeaseTerms
from hub.core.registry.reaper import EVERY as SWEEP_EVERY
from hub.core.registry.reaper import LeaseReaper
from hub.core.relay.context import Dependencies
from hub.core.routing.router import Router
from hub.core.supervisor import Supervisor
from hub.identity.tokens import FILE_NAME as TOKENS_FILE
from hub.identity.tokens import TokenBook
from hub.identity.vault import SealingVault, kept_key, key_from, random_key
from hub.inbound.a2a.cards import Cards, add_cards
from hub.inbound.a2a.jsonrpc import JsonRpc
from hub.inbound.a2a.operations import Operations
from hub.inbound.a2a.rest import Rest
from hub.inbound.api.application import create_api
from hub.inbound.api.catalog import Catalog, add_catalog
from hub.inbound.api.health import add_operations
from hub.inbound.api.leases import Leases
from hub.inbound.api.openapi import add_description
from hub.inbound.api.pushes import add_pushes
from hub.inbound.api.registry import add_registry
from hub.inbound.api.tasks import add_tasks
from hub.inbound.middleware.application import Application
from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.rate_limiter import RateLimiter
from hub.inbound.middleware.refusal import refusal_of
from hub.outbound.client import Client, ClientLimits
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard, read_networks
from hub.outbound.worker_guard import Guard
from hub.ports.clock import Clock
from hub.ports.engine import Engine
from hub.server.asgi import with_send_timeout
from hub.server.http_server import HttpServer
from hub.settings.model import Settings, variable
from hub.storage import open_engine
from hub.telemetry import metrics as telemetry
from rolecall.errors import ConfigError
from rolecall.model.ids import is_loopback
from rolecall.protocol.codec import Codec

log = logging.getLogger(__name__)

_FORGET_EVERY = 30.0
_KEEP_ALIVE_REQUESTS = 1_000_000
_BACKLOG = 2048
_ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000
_WHILE_READING = "Unhandled exception in client_connected_cb"
_WEBHOOK_LIMITS = ClientLimits(per_origin=16, overall=256)


@dataclass(frozen=True, slots=True)
class Rolecall:
    """A running hub: its ASGI application, and its parts."""

    application: Application
    hub: Hub
    directory: Directory
    engine: Engine
    push: PushConfigs
    observer: telemetry.Metrics

    def drain(self) -> None:
        """Take no new calls; end all waiting calls, streams and feeds."""
        self.hub.drain()
        self.directory.end_feeds()


Wrap = Callable[[Dependencies], Dependencies]


def unchanged(parts: Dependencies) -> Dependencies:
    return parts


@asynccontextmanager
async def assemble(
    settings: Settings, *, port: int, clock: Clock | None = None, wrap: Wrap = unchanged
) -> AsyncIterator[Rolecall]:
    """Open the engine, continue the tasks that an earlier hub left, and be ready to serve. Closes in the opposite order.
    `wrap` may replace parts before others are built on them.
    """
    clock = clock or WakingClock()
    supervisor = Supervisor()
    guard = Guard(settings.worker_networks, _own_addresses(settings, port), allow_loopback=is_loopback(settings.host))
    async with (
        open_engine(_store_url(settings), data_dir=settings.data_dir, clock=clock) as engine,
        Client(guard, ClientLimits(connect=settings.connect_timeout)) as client,
        Client(webhook_guard := _webhook_guard(settings, port), _WEBHOOK_LIMITS) as webhook_client,
    ):
        observer = telemetry.Metrics(lambda: chain.from_iterable(engine.registry.everyone()))
        vault = _vault(settings)
        parts = Dependencies(
            engine=engine,
            forwarder=HttpForwarder(client, vault=vault),
            codec=Codec(clock.wall),
            router=Router(engine.registry, engine.tasks, default_role=settings.default_role),
            observer=observer,
            clock=clock,
            silence=timedelta(seconds=settings.worker_silence),
            deadline=timedelta(seconds=settings.task_deadline),
            max_log=settings.max_log,
        )
        deps = wrap(parts)
        limits = HubLimits(
            open_tasks=settings.max_open_tasks,
            open_tasks_per_workspace=settings.max_open_tasks_per_workspace,
            streams=settings.max_streams,
            streams_per_workspace=settings.max_streams_per_workspace,
            keep_alive=timedelta(seconds=settings.keep_alive),
            retention=timedelta(seconds=settings.retention),
            max_pause=timedelta(seconds=settings.max_pause),
            same_message=timedelta(seconds=settings.same_message),
        )
        terms = LeaseTerms(timedelta(seconds=settings.lease_ttl), timedelta(seconds=settings.heartbeat))
        directory = Directory(
            engine.registry,
            deps.forwarder,
            observer,
            terms,
            check_url=guard.check_url,
            limit=settings.max_agents,
            per_holder_limit=settings.max_agents_per_token,
        )
        reaper = LeaseReaper(engine.registry, deps.forwarder, clock, heartbeat_of=directory.usual_heartbeat)
        webhooks = HttpWebhooks(webhook_client, webhook_guard, clock.wall, secret=settings.webhook_secret)
        deliveries = Deliveries(deps, webhooks, vault, supervisor, DeliveryPolicy(retry=timedelta(seconds=settings.push_retry)))
        push = PushConfigs(deps.engine.pushes, webhooks, vault, deliveries, limit=settings.max_push_configs)
        hub = Hub(deps, supervisor, limits, push)
        application = _application(settings, port, hub, directory, engine, push, vault, observer)
        rolecall = Rolecall(application, hub, directory, engine, push, observer)
        try:
            await hub.settle()
            supervisor.keep_running("silence watch", hub.relays.watch)
            supervisor.keep_running("lease sweep", lambda: _every(SWEEP_EVERY, reaper.look))
            supervisor.keep_running("registry observer", directory.observe)
            supervisor.keep_running("retention", lambda: _every(_FORGET_EVERY, hub.forget))
            supervisor.keep_running("push", deliveries.run)
            supervisor.keep_running("loop lag", lambda: _measure_lag(observer, clock))
            yield rolecall
        finally:
            rolecall.drain()
            await supervisor.close()


async def serve(
    settings: Settings, *, stop: asyncio.Event, ready: Callable[[str], None] | None = None, wrap: Wrap = unchanged
) -> None:
    """Serve until `stop` is set, then drain. `ready` gets the URL of the hub."""
    check_locked(settings)
    listener = open_listener(settings.host, settings.port, settings.reader_patience)
    port = int(listener.getsockname()[1])
    asyncio.get_running_loop().set_exception_handler(_on_loop_error)
    async with assemble(settings, port=port, wrap=wrap) as rolecall:

        async def until_stopped() -> None:
            await stop.wait()
            log.info("shutting down", extra={"event": "draining", "tasks": len(rolecall.hub.relays)})
            rolecall.drain()

        _configure_collector()
        if ready is not None:
            ready(settings.url(port))
        log.info("ready", extra={"event": "ready", "url": settings.url(port), "store": settings.store})
        if settings.server == "hypercorn":
            application = with_send_timeout(rolecall.application, settings.reader_patience)
            await hypercorn_serve(application, _server_config(settings, listener), shutdown_trigger=until_stopped)
        else:
            await _serve(rolecall, settings, listener, until_stopped)


async def _serve(
    rolecall: Rolecall, settings: Settings, listener: socket.socket, until_stopped: Callable[[], Awaitable[None]]
) -> None:
    http_server = HttpServer(
        rolecall.application,
        rolecall.observer,
        refusal_of,
        limit=settings.max_connections,
        patience=settings.reader_patience,
        max_head=settings.max_head,
    )
    timers = asyncio.create_task(http_server.keep_time(), name="connection timers")
    await http_server.open(listener, backlog=_BACKLOG)
    try:
        await until_stopped()
        await http_server.close(settings.drain)
    finally:
        timers.cancel()


def run(settings: Settings, *, ready: Callable[[str], None] | None = None, wrap: Wrap = unchanged) -> None:
    """Serve in this process until SIGTERM or SIGINT."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                loop.add_signal_handler(name, stop.set)
        await serve(settings, stop=stop, ready=ready, wrap=wrap)

    with asyncio.Runner(loop_factory=_loop_factory(settings.loop)) as runner:
        runner.run(main())


def _configure_collector() -> None:
    """Exclude what exists now from garbage collection: it stays. Collect rarely, since hardly any object of a call is part of a
    cycle: reference counts free them.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(0.001)
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS, 20, 20)


def _webhook_guard(settings: Settings, port: int) -> WebhookGuard:
    networks, unread = read_networks(settings.push_allowed_cidrs)
    for text in unread:
        log.warning("a network for webhooks cannot be read", extra={"event": "bad_network", "network": text[:100]})
    return WebhookGuard(settings.push_allowed_hosts, networks, _own_addresses(settings, port))


def _own_addresses(settings: Settings, port: int) -> Sequence[tuple[str, int]]:
    """The hub's own names and ports. The hub never calls them, whatever address they resolve to."""
    public = urlsplit(settings.url(port))
    usual = (443 if public.scheme == "https" else 80) if public.port is None else public.port
    ports = (80, 443) if usual in (80, 443) else (usual,)
    here = [settings.host, "localhost" if is_loopback(settings.host) else socket.gethostname()]
    return [*((name, port) for name in here), *((public.hostname or "", port) for port in ports)]


def check_locked(settings: Settings) -> None:
    """ConfigError if other machines could call this hub without a token."""
    if not is_loopback(settings.host) and not has_tokens(settings):
        raise ConfigError(
            [
                f"host {settings.host} lets other machines call the hub, and there are no tokens. Make one: "
                f"rolecall tokens new --kind admin --name me, or set {variable('admin_token')}; or listen on 127.0.0.1."
            ]
        )


def has_tokens(settings: Settings) -> bool:
    """Whether callers of this hub must show a token."""
    return not _tokens(settings).empty


def _tokens(settings: Settings) -> TokenBook:
    path = settings.tokens or (settings.data_dir / TOKENS_FILE if settings.store != "memory:" else None)
    return TokenBook(path, shared=settings.admin_token)


def _hosts(settings: Settings) -> Sequence[str]:
    """The Host names that a hub on loopback accepts. Any other one is DNS rebinding: another site uses the browser."""
    if not is_loopback(settings.host):
        return ()
    public = urlsplit(settings.public_url).hostname if settings.public_url else None
    return [name for name in ("localhost", "127.0.0.1", "[::1]", settings.host, public) if name]


def _vault(settings: Settings) -> SealingVault:
    if settings.secret_key is not None:
        return SealingVault(key_from(settings.secret_key))
    return SealingVault(random_key() if settings.store == "memory:" else kept_key(settings.data_dir))


def _application(
    settings: Settings,
    port: int,
    hub: Hub,
    directory: Directory,
    engine: Engine,
    push: PushConfigs,
    vault: SealingVault,
    observer: telemetry.Metrics,
) -> Application:
    api = create_api(settings.max_body, settings.max_depth)
    exposed = not is_loopback(settings.host)
    authenticator = Authenticator(_tokens(settings), _hosts(settings), max_head=settings.max_head, exposed=exposed)
    cards = Cards(
        directory,
        name=settings.name,
        description=settings.description,
        public_url=settings.url(port),
        version=settings.card_version,
        authenticator=authenticator,
    )
    add_cards(api, cards)
    add_catalog(api, Catalog(directory, name=settings.name, public_url=settings.url(port)))
    leases = Leases(directory, vault, max_body=settings.max_body, max_depth=settings.max_depth, max_card=settings.max_card)
    leases.add_to(api)
    feeds = WorkspaceQuota(settings.max_streams, settings.max_streams_per_workspace, "open feeds", "max_streams")
    add_registry(api, directory, keep_alive=timedelta(seconds=settings.keep_alive), feeds=feeds)
    add_tasks(api, hub)
    add_pushes(api, push)
    add_operations(api, hub, directory, engine, metrics=observer.render, metrics_type=telemetry.CONTENT_TYPE)
    add_description(api)
    keep_alive = settings.keep_alive
    operations = Operations(hub, push, cards.extended)
    depth = settings.max_depth
    rpc = JsonRpc(
        operations, observer, max_body=settings.max_body, max_depth=depth, max_batch=settings.max_batch, keep_alive=keep_alive
    )
    rate_limiter = RateLimiter(rate=settings.max_rate, at_once=settings.max_at_once)
    rest = Rest(operations, observer, max_body=settings.max_body, max_depth=depth, keep_alive=keep_alive)
    return Application(authenticator, rate_limiter, rpc, leases, rest, api, observer, max_body=settings.max_body)


def _store_url(settings: Settings) -> str:
    return "sqlite:" if settings.store == "sqlite" else settings.store


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors that clients cause and the server does not handle: a connection that the system cut because its peer took no
    data, and an invalid HTTP/2 request.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
        log.info("connection cut", extra={"event": "line_cut", "why": "its peer took no data for too long"})
    elif isinstance(error, Exception) and str(context.get("message")).startswith(_WHILE_READING):
        log.warning("connection cut", extra={"event": "line_cut", "why": f"its data cannot be read: {_error_names(error)}"})
    else:
        loop.default_exception_handler(context)


def _error_names(error: BaseException) -> str:
    """The class names of an error, or of all errors in a group. Their texts may hold what a client sent."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({_error_names(one) for one in error.exceptions}))
    return type(error).__name__


def open_listener(host: str, port: int, patience: float) -> socket.socket:
    """Bound before anything else is opened, so that a port in use is reported first. The system cuts a connection whose peer
    takes no data for `patience` seconds: the server itself would wait until all is sent.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small writes at once only if the socket names its protocol; uvloop always does.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _server_config(settings: Settings, listener: socket.socket) -> ServerConfig:
    config = ServerConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.backlog = _BACKLOG
    config.graceful_timeout = settings.drain
    config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS
    config.h11_max_incomplete_size = config.h2_max_header_list_size = 2 * settings.max_head
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    return config


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _every(seconds: float, job: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await job()


async def _measure_lag(observer: telemetry.Metrics, clock: Clock) -> None:
    """Measure how late the loop is, and read the clock often enough that it can detect sleep."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK
        await asyncio.sleep(TICK)
        clock.monotonic()
        observer.loop_lag(max(0.0, loop.time() - due))
