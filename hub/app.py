"""The composition root: makes every part of the hub, and the Quart application that callers reach."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from quart import Quart

from hub.clock import TICK, WakingClock
from hub.core.condition import Condition
from hub.core.files.files import FileLimits
from hub.core.hub import Hub, HubLimits
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
from hub.core.shares.table import ShareLimits, Shares
from hub.core.supervisor import Supervisor
from hub.core.tasks.trees import TreeLimits
from hub.core.token_watch import EVERY as LOOK_AT_TOKENS_EVERY
from hub.core.token_watch import OpenUses, TokenWatch
from hub.descriptors import Connections, fit, watch
from hub.identity.tokens import FILE_NAME as TOKENS_FILE
from hub.identity.tokens import MARK_NAME as TOKENS_MARK
from hub.identity.tokens import OnChange, TokenBook, TokenChange, TokenEntry
from hub.identity.vault import SealingVault, kept_key, key_from, random_key
from hub.inbound.a2a.batches import Batches
from hub.inbound.a2a.calls import Calls
from hub.inbound.a2a.jsonrpc import JsonRpc
from hub.inbound.a2a.operations import Operations
from hub.inbound.a2a.recorded import RecordedOperations
from hub.inbound.a2a.rest import Rest
from hub.inbound.api.answers import FileStore
from hub.inbound.api.application import create_api
from hub.inbound.api.health import add_operations
from hub.inbound.api.leases import Leases
from hub.inbound.api.openapi import add_description
from hub.inbound.api.pushes import add_pushes
from hub.inbound.api.registry import add_registry
from hub.inbound.api.tasks import add_tasks
from hub.inbound.cards.cards import Cards, add_cards
from hub.inbound.cards.catalog import Catalog, add_catalog
from hub.inbound.cards.documents import Documents
from hub.inbound.feeds.stream import Feeds
from hub.inbound.feeds.tasks import add_task_feed
from hub.inbound.files.addresses import PATH as FILES_PATH
from hub.inbound.files.addresses import FileAddresses
from hub.inbound.middleware.asgi_middleware import AsgiMiddleware
from hub.inbound.middleware.audit import record_token
from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.origins import Origins
from hub.inbound.middleware.quarantine import Quarantine
from hub.inbound.middleware.rate_limiter import RateLimiter
from hub.inbound.middleware.record_first import RecordFirst
from hub.outbound.answers import AnswerLimits
from hub.outbound.card_source import HttpCards
from hub.outbound.client import Client, ClientLimits, trust_of
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.resolver import Resolver
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard, read_networks
from hub.outbound.worker_guard import Guard, Nowhere
from hub.place import Place
from hub.ports.clock import Clock
from hub.ports.forwarder import Forwarder
from hub.ports.state.engine import Engine
from hub.server.asgi import App, Receive, Scope, Send, with_send_timeout
from hub.settings.agents import AgentSetting, read_again
from hub.settings.model import Settings, variable
from hub.storage import open_engine
from hub.telemetry import metrics as telemetry
from hub.telemetry.audit_file import AuditFile, open_audit_file
from hub.telemetry.audit_file import check as check_audit
from rolecall.errors import ConfigError, OfferInvalid
from rolecall.model.worker import ConfiguredAgent
from rolecall.protocol.codec import Codec
from rolecall.protocol.extensions.files import FileUrls, files_extension
from rolecall.protocol.faults import row_of

log = logging.getLogger(__name__)

_FORGET_EVERY = 30.0
_RETRY_AUDIT_EVERY = 1.0
_LOOK_AT_CREDENTIALS_EVERY = 5.0
_WEBHOOK_LIMITS = ClientLimits(per_origin=16, overall=256)
_EXTENSION = "hub"
"""Where Quart keeps the parts of the running hub."""
_NO_TOKENS = "the hub has had tokens and has none now, so it refuses every caller. Make one: rolecall tokens new"
_QUARANTINE = "in quarantine: the hub calls nobody, and takes no calls, no workers and no changes"
_TLS_ELSEWHERE = (
    "tls_cert and tls_key are for `rolecall serve`. Give another server the certificate in its own way, unset both here, "
    f"and set {variable('public_url')} to the https address."
)


@dataclass(frozen=True, slots=True)
class Rolecall:
    """The parts of a running hub."""

    hub: Hub
    directory: Directory
    engine: Engine
    push: PushConfigs
    shares: Shares
    disk_growth: GrowthWatch
    observer: telemetry.Metrics
    configured: ConfiguredAgents
    supervisor: Supervisor
    vault: SealingVault
    max_connections: int
    """How many connections to the hub its process can have."""
    agents: list[AgentSetting] = field(default_factory=list)
    """Those whose leases it holds."""
    sealed: dict[str, str] = field(default_factory=dict)
    """Their credentials, each sealed once, so that it stays the same."""
    unread: list[str] = field(default_factory=list)
    """Why some of them are not read again, as it was logged last."""

    def hold(self, agents: Sequence[AgentSetting]) -> None:
        """Hold the leases of these agents, and of no others, from now on."""
        self.agents[:] = agents
        before = {**self.sealed}
        self.sealed.clear()
        for secret in {agent.authorization for agent in agents if agent.authorization is not None}:
            self.sealed[secret] = before.get(secret) or b64encode(self.vault.seal(secret.encode())).decode()
        self.configured.replace([self._configured(agent) for agent in agents])

    def _configured(self, agent: AgentSetting) -> ConfiguredAgent:
        credential = self.sealed[agent.authorization] if agent.authorization is not None else ""
        return ConfiguredAgent(agent.role, agent.url, agent.instance, agent.labels, credential)

    async def look_at_credentials(self) -> None:
        """Hold the agents with the credentials that their files hold now."""
        before = [*self.agents]
        now, problems = await asyncio.to_thread(read_again, before)
        if self.agents != before:
            return  # they were replaced meanwhile
        if problems != self.unread:
            self.unread[:] = problems
            if problems:
                log.warning("credentials not read", extra={"event": "credentials_not_read", "why": " ".join(problems)})
        if now != before:
            self.hold(now)
            log.info("credentials read again", extra={"event": "credentials_read"})

    def drain(self) -> None:
        """Take no new calls; end all waiting calls, streams and feeds."""
        self.hub.drain()
        self.directory.end_feeds()


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
                rolecall.hold(agents)
                app.extensions[_EXTENSION] = rolecall
                if port is None:
                    _put_before(app, with_send_timeout(app.asgi_app, settings.reader_patience))
                    if settings.public_url is None:
                        _put_before(app, _PortCheck(app, place))
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
    supervisor, shares = Supervisor(), Shares(_share_limits(settings, connections.workers), descriptors)
    tokens = _tokens(settings, _token_changed)
    own_addresses = place.own_addresses
    resolver = Resolver(shares.lookups)
    guard, webhook_guard = _guard(settings, place, resolver), _webhook_guard(settings, own_addresses, resolver)
    nowhere = Nowhere() if settings.quarantine else None
    limits = _worker_limits(settings, connections.workers)
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
        vault = _vault(settings)
        file_urls = FileUrls(f"{_files_url(place)}/")
        forwarder = HttpForwarder(client, _answer_limits(settings), vault, shares.large_events, file_urls)
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
        reaper = LeaseReaper(engine.registry, deps.forwarder, clock, heartbeat_of=directory.usual_heartbeat)
        webhooks = HttpWebhooks(webhook_client, webhook_guard, clock.wall, secret=settings.webhook_secret)
        deliveries = Deliveries(deps, webhooks, vault, supervisor, DeliveryPolicy(retry=timedelta(seconds=settings.push_retry)))
        push = PushConfigs(deps.engine.pushes, webhooks, vault, deliveries, limit=settings.max_push_configs)
        hub = Hub(deps, supervisor, _hub_limits(settings, place), push, tokens.may_call, quarantined=settings.quarantine)
        disk_growth = GrowthWatch(shares.disk, clock)
        rolecall = Rolecall(
            hub, directory, engine, push, shares, disk_growth, observer, configured, supervisor, vault, connections.callers
        )
        uses = OpenUses()
        token_watch = TokenWatch(tokens, uses, engine.registry, hub.relays)
        _mount(app, rolecall, settings, place, vault, tokens, uses, clock, audit_file)
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
                supervisor.keep_running("retention", lambda: _every(_FORGET_EVERY, hub.forget))
                supervisor.keep_running("push", deliveries.run)
            supervisor.keep_running("token watch", lambda: _every(LOOK_AT_TOKENS_EVERY, token_watch.look))
            supervisor.keep_running("credentials", lambda: _every(_LOOK_AT_CREDENTIALS_EVERY, rolecall.look_at_credentials))
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


def _hub_limits(settings: Settings, place: Place) -> HubLimits:
    grace, address = timedelta(seconds=settings.file_grace), f"{_files_url(place)}/"
    return HubLimits(
        keep_alive=timedelta(seconds=settings.keep_alive),
        retention=timedelta(seconds=settings.retention),
        keep_summaries=timedelta(seconds=settings.keep_summaries),
        max_pause=timedelta(seconds=settings.max_pause),
        same_message=timedelta(seconds=settings.same_message),
        keep_usage=timedelta(seconds=settings.keep_usage),
        tree=TreeLimits(settings.max_call_depth, settings.max_tree_calls),
        files=FileLimits(settings.max_file, grace, address),
    )


def _files_url(place: Place) -> str:
    """What the URLs of the hub's files begin with."""
    return f"{place.url.rstrip('/')}{FILES_PATH}"


def _share_limits(settings: Settings, worker_connections: int) -> ShareLimits:
    per_workspace = _part(settings.max_worker_connections_per_workspace, settings, worker_connections)
    return ShareLimits(
        open_tasks=settings.max_open_tasks,
        open_tasks_per_workspace=settings.max_open_tasks_per_workspace,
        streams=settings.max_streams,
        streams_per_workspace=settings.max_streams_per_workspace,
        waiting=settings.max_waiting,
        waiting_per_workspace=settings.max_waiting_per_workspace,
        message_memory=settings.max_message_memory,
        message_memory_per_workspace=settings.max_message_memory_per_workspace,
        worker_connections=worker_connections,
        worker_connections_per_workspace=per_workspace,
        at_once=settings.max_at_once,
        disk=settings.max_disk,
        disk_per_workspace=settings.max_disk_per_workspace,
        transfers=settings.max_transfers,
        transfers_per_workspace=settings.max_transfers_per_workspace,
        unsent=settings.max_unsent,
        unsent_per_workspace=settings.max_unsent_per_workspace,
    )


def _part(part: int, settings: Settings, worker_connections: int) -> int:
    """A part of the connections to workers, where fewer fit than the setting says."""
    return max(1, part * worker_connections // settings.max_worker_connections)


def _answer_limits(settings: Settings) -> AnswerLimits:
    """A worker's whole task may be as large as the log that it is compared with."""
    return AnswerLimits(max_answer=settings.max_log, max_event=settings.max_event)


def _worker_limits(settings: Settings, worker_connections: int) -> ClientLimits:
    return ClientLimits(
        per_origin=_part(settings.max_connections_per_worker, settings, worker_connections),
        overall=worker_connections,
        connect=settings.connect_timeout,
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


def _mount(
    app: Quart,
    rolecall: Rolecall,
    settings: Settings,
    place: Place,
    vault: SealingVault,
    tokens: TokenBook,
    uses: OpenUses,
    clock: Clock,
    audit_file: AuditFile | None,
) -> None:
    """Add the routes to the application, and the middleware that answers A2A calls before Quart sees them."""
    hub, directory, observer = rolecall.hub, rolecall.directory, rolecall.observer
    if tokens.required and tokens.empty and not tokens.problem:
        log.warning(_NO_TOKENS, extra={"event": "no_tokens"})
    admission = partial(RecordFirst, audit_file) if audit_file is not None and settings.audit_required else Authenticator
    authenticator = admission(
        tokens,
        place.hosts,
        Origins(settings.allowed_origins, settings.public_url),
        max_head=settings.max_head,
        exposed=place.exposed,
    )
    documents = Documents(directory, rolecall.shares.documents, clock.wall)
    cards = Cards(
        directory,
        documents,
        name=settings.name,
        description=settings.description,
        public_url=place.url,
        version=settings.card_version,
        authenticator=authenticator,
        max_card=settings.max_card,
        durable=settings.store != "memory:",
        files=files_extension(_files_url(place), settings.max_file) if settings.max_file else None,
    )
    add_cards(app, cards)
    add_catalog(app, Catalog(documents, name=settings.name, public_url=place.url))
    depth, keep_alive = settings.max_depth, settings.keep_alive
    store = FileStore(url=_files_url(place), max_size=settings.max_file) if settings.max_file else None
    leases = Leases(directory, vault, max_body=settings.max_body, max_depth=depth, max_card=settings.max_card, files=store)
    leases.add_to(app)
    files = FileAddresses(hub.files, hub.trees)
    files.add_to(app)
    feeds, idle = Feeds(rolecall.shares.feeds, uses), timedelta(seconds=keep_alive)
    add_registry(app, directory, feeds, keep_alive=idle)
    add_tasks(app, hub, uses)
    add_task_feed(app, hub.task_feeds, feeds, keep_alive=idle)
    add_pushes(app, rolecall.push)
    descriptors, required = rolecall.shares.descriptors, settings.audit_required
    condition = Condition(hub, rolecall.engine, descriptors, tokens, clock, audit_file, audit_required=required)
    add_operations(
        app,
        hub,
        directory,
        condition,
        rolecall.shares,
        rolecall.disk_growth,
        metrics=observer.render,
        metrics_type=telemetry.CONTENT_TYPE,
    )
    add_description(app)
    unsent = rolecall.shares.unsent
    operations = (Operations if audit_file is None else RecordedOperations)(hub, rolecall.push, cards.extended)
    calls = Calls(operations, observer, unsent, keep_alive=keep_alive)
    rate_limiter = RateLimiter(rate=settings.max_rate, at_once=settings.max_at_once)
    call_turns = CallTurns(rolecall.shares.calls)
    batches = Batches(rate_limiter, call_turns, unsent, entries=settings.max_batch, size=settings.max_batch_answer)
    rpc = JsonRpc(calls, batches, max_body=settings.max_body, max_depth=depth)
    rest = Rest(calls, max_body=settings.max_body, max_depth=depth)
    middleware = AsgiMiddleware(
        authenticator,
        rate_limiter,
        rpc,
        leases,
        files,
        rest,
        app.asgi_app,
        observer,
        rolecall.shares,
        call_turns,
        uses,
        max_body=settings.max_body,
    )
    _put_before(app, Quarantine(middleware, uses) if settings.quarantine else middleware)


def _put_before(app: Quart, middleware: App) -> None:
    """As Quart takes middleware, which it declares as a method."""
    untyped: Any = app
    untyped.asgi_app = middleware


class _PortCheck:
    """The middleware of the first request under another server. It warns if the hub's cards name another port than the one
    that the request arrived at, and then is no longer there.
    """

    def __init__(self, app: Quart, place: Place) -> None:
        self._app = app
        self._below: App = app.asgi_app
        self._port = urlsplit(place.url).port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = scope.get("server")
        if scope["type"] == "http" and server and server[1] is not None:
            _put_before(self._app, self._below)
            if server[1] != self._port:
                facts = {"event": "other_port", "port": server[1], "cards_name": self._port}
                log.warning("cards name another port than the server's: set ROLECALL_PUBLIC_URL or ROLECALL_PORT", extra=facts)
        await self._below(scope, receive, send)


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
