"""The composition root: makes every part of the hub, and the Quart application that callers reach."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

from quart import Quart

from hub.clock import TICK, WakingClock
from hub.core.hub import Hub
from hub.core.push.configs import PushConfigs
from hub.core.push.deliveries import Deliveries, DeliveryPolicy
from hub.core.registry.card_reader import CardReader
from hub.core.registry.configured import ConfiguredAgents
from hub.core.registry.directory import Directory, LeaseTerms
from hub.core.registry.reaper import EVERY as SWEEP_EVERY
from hub.core.registry.reaper import LeaseReaper
from hub.core.relay.context import Dependencies
from hub.core.routing.failing import FailingWorkers
from hub.core.routing.router import Router
from hub.core.routing.waiting import WaitingCalls
from hub.core.shares.descriptors import Descriptors
from hub.core.shares.growth import EVERY as LOOK_AT_GROWTH_EVERY
from hub.core.shares.growth import GrowthWatch
from hub.core.shares.table import Shares
from hub.core.supervisor import Supervisor
from hub.core.token_watch import EVERY as LOOK_AT_TOKENS_EVERY
from hub.core.token_watch import OpenUses, TokenWatch
from hub.descriptors import Connections, fit, watch
from hub.held_agents import HeldAgents
from hub.identity.tokens import FILE_NAME as TOKENS_FILE
from hub.identity.tokens import MARK_NAME as TOKENS_MARK
from hub.identity.tokens import OnChange, TokenBook, TokenChange, TokenEntry
from hub.identity.vault import SealingVault, kept_key, key_from, random_key
from hub.inbound.api.application import create_api
from hub.inbound.middleware.audit import record_token
from hub.limits import answer_limits, hub_limits, share_limits, worker_limits
from hub.mount import PortCheck, files_url, mount, put_before
from hub.outbound.card_source import HttpCards
from hub.outbound.client import Client, ClientLimits, trust_of
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.resolver import Resolver
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard, read_networks
from hub.outbound.worker_guard import Guard, Nowhere
from hub.parts import Rolecall
from hub.place import Place
from hub.ports.clock import Clock
from hub.ports.forwarder import Forwarder
from hub.ports.state.engine import Engine
from hub.server.asgi import with_send_timeout
from hub.settings.agents import AgentSetting
from hub.settings.model import Settings, variable
from hub.storage import open_engine
from hub.telemetry import metrics as telemetry
from hub.telemetry.audit_file import AuditFile, open_audit_file
from hub.telemetry.audit_file import check as check_audit
from rolecall.errors import ConfigError, OfferInvalid
from rolecall.protocol.codec import Codec
from rolecall.protocol.extensions.files import FileUrls
from rolecall.protocol.faults import row_of

log = logging.getLogger(__name__)

_FORGET_EVERY = 30.0
_RETRY_AUDIT_EVERY = 1.0
_WEBHOOK_LIMITS = ClientLimits(per_origin=16, overall=256)
_EXTENSION = "hub"
"""Where Quart keeps the parts of the running hub."""
_QUARANTINE = "in quarantine: the hub calls nobody, and takes no calls, no workers and no changes"
_TLS_ELSEWHERE = (
    "tls_cert and tls_key are for `rolecall serve`. Give another server the certificate in its own way, unset both here, "
    f"and set {variable('public_url')} to the https address."
)


Wrap = Callable[[Dependencies], Dependencies]


def unchanged(parts: Dependencies) -> Dependencies:
    return parts


def create_app(
    settings: Settings,
    *,
    port: int | None = None,
    clock: Clock | None = None,
    agents: Sequence[AgentSetting] = (),
    wrap: Wrap = unchanged,
    descriptors: Descriptors | None = None,
) -> Quart:
    """The whole hub as an ASGI application. It opens its store when the lifespan starts, continues the tasks that an earlier
    hub left, and closes when the lifespan ends.

    `port` is the one that the hub's own server listens on. None: another server runs the application, and its address is
    unknown. `agents`: those whose leases the hub holds. `wrap` may replace parts before others are built on them.
    `descriptors`: of the process; None: any number. ConfigError: other machines could call without a token, an agent is
    where no worker may be, or a file cannot be used.
    """
    if port is None and settings.tls_cert is not None:
        raise ConfigError([_TLS_ELSEWHERE])
    place = Place.of(settings, port)
    tokens = _tokens(settings)
    if place.exposed and tokens.empty:
        raise ConfigError([tokens.problem or place.why_tokens])
    if settings.audit_log is not None:
        check_audit(settings.audit_log)
    check_agents(settings, agents, place)
    app = create_api(settings.max_body, settings.max_depth)

    @app.while_serving
    async def hub() -> AsyncGenerator[None, None]:
        with open_audit_file(settings.audit_log) as audit_file:
            parts = _running(app, settings, place, clock or WakingClock(), wrap, descriptors or Descriptors(), audit_file)
            async with parts as rolecall:
                rolecall.agents.hold(agents)
                app.extensions[_EXTENSION] = rolecall
                if port is None:
                    put_before(app, with_send_timeout(app.asgi_app, settings.reader_patience))
                    if settings.public_url is None:
                        put_before(app, PortCheck(app, place))
                yield

    return app


def problems_of(settings: Settings, agents: Sequence[AgentSetting]) -> Sequence[str]:
    """Why the hub would not start as `rolecall serve`, except for its certificate; and what it would warn of and ignore. It
    changes nothing.
    """
    place = Place.of(settings, settings.port)
    problems = []
    tokens = TokenBook(_token_file(settings), shared=settings.admin_token)
    if tokens.problem or (place.exposed and tokens.empty):
        problems.append(tokens.problem or place.why_tokens)
    problems += [f"push_allowed_cidrs: {text!r} is not a network." for text in read_networks(settings.push_allowed_cidrs)[1]]
    problems += refusals(lambda: check_agents(settings, agents, place))
    problems += refusals(lambda: trust_of(settings.ca_file))
    if (path := settings.audit_log) is not None:
        problems += refusals(lambda: check_audit(path))
    return problems


def refusals(check: Callable[[], object]) -> Sequence[str]:
    try:
        check()
    except ConfigError as error:
        return error.problems
    return ()


def check_agents(settings: Settings, agents: Sequence[AgentSetting], place: Place | None = None) -> None:
    """ConfigError: a URL is not allowed. `place`: of the hub; None: as `rolecall serve` would listen."""
    guard = _guard(settings, place or Place.of(settings, settings.port))
    problems = []
    for agent in agents:
        try:
            guard.check_url(agent.url)
        except OfferInvalid as error:
            problems.append(f"{agent.origin}: {error.message}")
    if problems:
        raise ConfigError(problems)


def _guard(settings: Settings, place: Place, resolver: Resolver | None = None) -> Guard:
    resolve = resolver.resolve if resolver is not None else None
    return Guard(settings.worker_networks, place.own_addresses, allow_loopback=place.on_loopback, resolve=resolve)


def parts_of(app: Quart) -> Rolecall:
    """KeyError: the lifespan has not started."""
    return cast(Rolecall, app.extensions[_EXTENSION])


@asynccontextmanager
async def _running(
    app: Quart,
    settings: Settings,
    place: Place,
    clock: Clock,
    wrap: Wrap,
    descriptors: Descriptors,
    audit_file: AuditFile | None,
) -> AsyncIterator[Rolecall]:
    """Make the parts, mount them in the application, and keep what runs in the background running."""
    connections = fit(Connections(settings.max_connections, settings.max_worker_connections), descriptors.limit)
    supervisor, shares = Supervisor(), Shares(share_limits(settings, connections.workers), descriptors)
    tokens = _tokens(settings, _token_changed)
    own_addresses = place.own_addresses
    resolver = Resolver(shares.lookups)
    guard, webhook_guard = _guard(settings, place, resolver), _webhook_guard(settings, own_addresses, resolver)
    nowhere = Nowhere() if settings.quarantine else None
    limits = worker_limits(settings, connections.workers)
    tls = trust_of(settings.ca_file) if settings.ca_file is not None else None
    async with (
        open_engine(
            _store_url(settings), data_dir=settings.data_dir, clock=clock, disk_reserve=settings.disk_reserve, disk=shares.disk
        ) as engine,
        Client(nowhere or guard, limits, share=shares.worker_connections, descriptors=descriptors, tls=tls) as client,
        Client(nowhere or webhook_guard, _WEBHOOK_LIMITS, descriptors=descriptors, tls=tls) as webhook_client,
    ):
        observer = telemetry.Metrics(
            lambda: chain.from_iterable(engine.registry.everyone()),
            shares.uses,
            reason_of=lambda error: row_of(type(error)).reason.lower(),
        )
        vault, file_addresses = _vault(settings), f"{files_url(place)}/"
        file_urls = FileUrls(file_addresses)
        forwarder = HttpForwarder(client, answer_limits(settings), vault, shares.large_events, file_urls)
        codec = Codec(clock.wall, file_urls)
        parts = _dependencies(settings, engine, forwarder, codec, observer, clock, supervisor, shares, tokens)
        deps = wrap(parts)
        terms = LeaseTerms(timedelta(seconds=settings.lease_ttl), timedelta(seconds=settings.heartbeat))
        source = HttpCards(client, guard, vault, max_card=settings.max_card, max_depth=settings.max_depth)
        cards = CardReader(
            engine.registry, source, clock, supervisor, shares.card_reads, refresh=timedelta(seconds=settings.card_refresh)
        )
        directory = Directory(
            engine.registry,
            deps.forwarder,
            observer,
            terms,
            cards=cards,
            on_beat=deps.waiting.wake,
            check_url=guard.check_url,
            limit=settings.max_agents,
            per_holder_limit=settings.max_agents_per_token,
        )
        configured = ConfiguredAgents(engine.registry, directory, cards, source, clock, supervisor, heartbeat=terms.heartbeat)
        agents = HeldAgents(configured, vault)
        reaper = LeaseReaper(engine.registry, deps.forwarder, clock, heartbeat_of=directory.usual_heartbeat)
        webhooks = HttpWebhooks(webhook_client, webhook_guard, clock.wall, secret=settings.webhook_secret)
        deliveries = Deliveries(deps, webhooks, vault, supervisor, DeliveryPolicy(retry=timedelta(seconds=settings.push_retry)))
        push = PushConfigs(deps.engine.pushes, webhooks, vault, deliveries, limit=settings.max_push_configs)
        hub = Hub(
            deps, supervisor, hub_limits(settings, file_addresses), push, tokens.may_call, quarantined=settings.quarantine
        )
        disk_growth = GrowthWatch(shares.disk, clock)
        rolecall = Rolecall(
            hub, directory, engine, push, shares, disk_growth, observer, agents, supervisor, connections.callers
        )
        uses = OpenUses()
        token_watch = TokenWatch(tokens, uses, engine.registry, hub.relays)
        mount(app, rolecall, settings, place, vault, tokens, uses, clock, audit_file)
        try:
            await token_watch.look()
            await disk_growth.look()
            if settings.quarantine:
                log.warning(_QUARANTINE, extra={"event": "quarantine"})
            else:
                await hub.settle()
                supervisor.keep_running("silence watch", hub.relays.watch)
                supervisor.keep_running("deadlines of trees", hub.trees.watch)
                supervisor.keep_running("paused tasks", hub.paused_tasks.watch)
                supervisor.keep_running("waiting calls", deps.waiting.watch)
                supervisor.keep_running("lease sweep", lambda: _every(SWEEP_EVERY, reaper.look))
                supervisor.keep_running("cards", cards.watch)
                supervisor.keep_running("configured agents", configured.watch)
                supervisor.keep_running("credentials", agents.watch)
                supervisor.keep_running("retention", lambda: _every(_FORGET_EVERY, hub.forget))
                supervisor.keep_running("push", deliveries.run)
            supervisor.keep_running("token watch", lambda: _every(LOOK_AT_TOKENS_EVERY, token_watch.look))
            supervisor.keep_running("registry observer", directory.observe)
            supervisor.keep_running("disk growth", lambda: _every(LOOK_AT_GROWTH_EVERY, disk_growth.look))
            supervisor.keep_running("descriptors", lambda: watch(descriptors))
            supervisor.keep_running("loop lag", lambda: _measure_lag(observer, clock))
            if audit_file is not None:
                supervisor.keep_running("audit log", partial(_retry_audit, audit_file))
            yield rolecall
        finally:
            rolecall.drain()
            await supervisor.close()
            await resolver.aclose()


def _dependencies(
    settings: Settings,
    engine: Engine,
    forwarder: Forwarder,
    codec: Codec,
    observer: telemetry.Metrics,
    clock: Clock,
    supervisor: Supervisor,
    shares: Shares,
    tokens: TokenBook,
) -> Dependencies:
    failing = FailingWorkers(engine.registry, clock, supervisor)
    return Dependencies(
        engine=engine,
        forwarder=forwarder,
        codec=codec,
        router=Router(engine.registry, engine.tasks, failing, default_role=settings.default_role),
        failing=failing,
        waiting=WaitingCalls(engine.registry),
        observer=observer,
        clock=clock,
        silence=timedelta(seconds=settings.worker_silence),
        deadline=timedelta(seconds=settings.task_deadline),
        pause_grace=timedelta(seconds=settings.pause_grace),
        max_log=settings.max_log,
        max_log_events=settings.max_log_events,
        shares=shares,
        token_is_valid=tokens.is_valid,
        max_inline=settings.max_event if settings.inline_files else 0,
    )


def _webhook_guard(settings: Settings, own_addresses: Sequence[tuple[str, int]], resolver: Resolver) -> WebhookGuard:
    networks, unread = read_networks(settings.push_allowed_cidrs)
    for text in unread:
        log.warning("a network for webhooks cannot be read", extra={"event": "bad_network", "network": text[:100]})
    return WebhookGuard(settings.push_allowed_hosts, networks, own_addresses, resolve=resolver.resolve)


def needs_tokens(settings: Settings) -> bool:
    """Whether callers of this hub must show a token, wherever they are."""
    return _tokens(settings).required


def _tokens(settings: Settings, on_change: OnChange | None = None) -> TokenBook:
    mark = settings.data_dir / TOKENS_MARK if settings.store != "memory:" else None
    return TokenBook(_token_file(settings), mark=mark, shared=settings.admin_token, on_change=on_change)


def _token_file(settings: Settings) -> Path | None:
    return settings.tokens or (settings.data_dir / TOKENS_FILE if settings.store != "memory:" else None)


def _token_changed(change: TokenChange, entry: TokenEntry) -> None:
    holder = entry.principal
    facts = {"event": change.replace(" ", "_"), "id": entry.id, "holder": holder.name, "workspace": holder.workspace}
    log.info(change.value, extra={**facts, "kind": holder.kind.value})
    record_token(change.value, holder)


def _vault(settings: Settings) -> SealingVault:
    if settings.secret_key is not None:
        return SealingVault(key_from(settings.secret_key))
    return SealingVault(random_key() if settings.store == "memory:" else kept_key(settings.data_dir))


def _store_url(settings: Settings) -> str:
    return "sqlite:" if settings.store == "sqlite" else settings.store


async def _every(seconds: float, job: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await job()


async def _retry_audit(audit_file: AuditFile) -> None:
    """An outage of the audit log ends without a call: while it lasts there may be none."""
    while True:
        await asyncio.sleep(_RETRY_AUDIT_EVERY)
        audit_file.retry()


async def _measure_lag(observer: telemetry.Metrics, clock: Clock) -> None:
    """Measure how late the loop is, and read the clock often enough that it can detect sleep."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK
        await asyncio.sleep(TICK)
        clock.monotonic()
        observer.loop_lag(max(0.0, loop.time() - due))
