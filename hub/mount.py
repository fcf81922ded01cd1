"""Puts a hub behind its Quart application: routes, and the middleware that answers A2A calls before Quart sees them."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from quart import Quart

from hub.core.condition import Condition
from hub.core.token_watch import OpenUses
from hub.identity.tokens import TokenBook
from hub.identity.vault import SealingVault
from hub.inbound.a2a.batches import Batches
from hub.inbound.a2a.calls import Calls
from hub.inbound.a2a.jsonrpc import JsonRpc
from hub.inbound.a2a.operations import Operations
from hub.inbound.a2a.recorded import RecordedOperations
from hub.inbound.a2a.rest import Rest
from hub.inbound.api.answers import FileStore
from hub.inbound.api.health import add_operations
from hub.inbound.api.leases import Leases
from hub.inbound.api.openapi import add_description
from hub.inbound.api.pushes import add_pushes
from hub.inbound.api.registry import add_registry
from hub.inbound.api.tasks import add_tasks
from hub.inbound.api.usage import add_usage
from hub.inbound.cards.cards import Cards, add_cards
from hub.inbound.cards.catalog import Catalog, add_catalog
from hub.inbound.cards.documents import Documents
from hub.inbound.feeds.stream import Feeds
from hub.inbound.feeds.tasks import add_task_feed
from hub.inbound.files.addresses import PATH as FILES_PATH
from hub.inbound.files.addresses import FileAddresses
from hub.inbound.middleware.asgi_middleware import AsgiMiddleware
from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.origins import Origins
from hub.inbound.middleware.quarantine import Quarantine
from hub.inbound.middleware.rate_limiter import RateLimiter
from hub.inbound.middleware.record_first import RecordFirst
from hub.parts import Rolecall
from hub.place import Place
from hub.ports.clock import Clock
from hub.server.asgi import App, Receive, Scope, Send
from hub.settings.model import Settings
from hub.telemetry.audit_file import AuditFile
from hub.telemetry.metrics import CONTENT_TYPE
from rolecall.protocol.extensions.files import files_extension

log = logging.getLogger(__name__)

_NO_TOKENS = "the hub has had tokens and has none now, so it refuses every caller. Make one: rolecall tokens new"


def files_url(place: Place) -> str:
    """The collection of the hub's files. The URL of each is below it."""
    return f"{place.url.rstrip('/')}{FILES_PATH}"


def mount(
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
    if tokens.required and tokens.empty and not tokens.problem:
        log.warning(_NO_TOKENS, extra={"event": "no_tokens"})
    hub, shares, required = rolecall.hub, rolecall.shares, settings.audit_required
    authenticator = _authenticator(settings, place, tokens, audit_file)
    cards = _add_cards(app, rolecall, settings, place, authenticator, clock)
    leases, files = _leases(rolecall, settings, place, vault), FileAddresses(hub.files, hub.trees)
    leases.add_to(app)
    files.add_to(app)
    condition = Condition(hub, rolecall.engine, shares.descriptors, tokens, clock, audit_file, audit_required=required)
    _add_api(app, rolecall, condition, uses, keep_alive=timedelta(seconds=settings.keep_alive))
    operations = (Operations if audit_file is None else RecordedOperations)(hub, rolecall.push, cards.extended)
    calls = Calls(operations, rolecall.observer, shares.unsent, keep_alive=settings.keep_alive)
    rate_limiter = RateLimiter(rate=settings.max_rate, at_once=settings.max_at_once)
    turns = CallTurns(shares.calls)
    batches = Batches(rate_limiter, turns, shares.unsent, entries=settings.max_batch, size=settings.max_batch_answer)
    middleware = AsgiMiddleware(
        authenticator,
        rate_limiter,
        JsonRpc(calls, batches, max_body=settings.max_body, max_depth=settings.max_depth),
        leases,
        files,
        Rest(calls, max_body=settings.max_body, max_depth=settings.max_depth),
        app.asgi_app,
        rolecall.observer,
        shares,
        turns,
        uses,
        max_body=settings.max_body,
    )
    put_before(app, Quarantine(middleware, uses) if settings.quarantine else middleware)


def _authenticator(settings: Settings, place: Place, tokens: TokenBook, audit_file: AuditFile | None) -> Authenticator:
    kind = partial(RecordFirst, audit_file) if audit_file is not None and settings.audit_required else Authenticator
    origins = Origins(settings.allowed_origins, settings.public_url)
    return kind(tokens, place.hosts, origins, max_head=settings.max_head, exposed=place.exposed)


def _add_cards(
    app: Quart, rolecall: Rolecall, settings: Settings, place: Place, authenticator: Authenticator, clock: Clock
) -> Cards:
    documents = Documents(rolecall.directory, rolecall.shares.documents, clock.wall)
    cards = Cards(
        rolecall.directory,
        documents,
        name=settings.name,
        description=settings.description,
        public_url=place.url,
        version=settings.card_version,
        authenticator=authenticator,
        max_card=settings.max_card,
        durable=settings.store != "memory:",
        files=files_extension(files_url(place), settings.max_file) if settings.max_file else None,
    )
    add_cards(app, cards)
    add_catalog(app, Catalog(documents, name=settings.name, public_url=place.url))
    return cards


def _leases(rolecall: Rolecall, settings: Settings, place: Place, vault: SealingVault) -> Leases:
    return Leases(
        rolecall.directory,
        vault,
        max_body=settings.max_body,
        max_depth=settings.max_depth,
        max_card=settings.max_card,
        files=FileStore(url=files_url(place), max_size=settings.max_file) if settings.max_file else None,
    )


def _add_api(app: Quart, rolecall: Rolecall, condition: Condition, uses: OpenUses, *, keep_alive: timedelta) -> None:
    hub, directory, feeds = rolecall.hub, rolecall.directory, Feeds(rolecall.shares.feeds, uses)
    add_registry(app, directory, feeds, keep_alive=keep_alive)
    add_tasks(app, hub, uses)
    add_usage(app, hub)
    add_task_feed(app, hub.task_feeds, feeds, keep_alive=keep_alive)
    add_pushes(app, rolecall.push)
    add_operations(
        app,
        hub,
        directory,
        condition,
        rolecall.shares,
        rolecall.disk_growth,
        metrics=rolecall.observer.render,
        metrics_type=CONTENT_TYPE,
    )
    add_description(app)


def put_before(app: Quart, middleware: App) -> None:
    """As Quart takes middleware, which it declares as a method."""
    untyped: Any = app
    untyped.asgi_app = middleware


class PortCheck:
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
            put_before(self._app, self._below)
            if server[1] != self._port:
                facts = {"event": "other_port", "port": server[1], "cards_name": self._port}
                log.warning("cards name another port than the server's: set ROLECALL_PUBLIC_URL or ROLECALL_PORT", extra=facts)
        await self._below(scope, receive, send)
