"""Liveness, readiness, health and metrics, and what a caller may ask for."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import UNSET
from quart import Quart, Response

from hub.core.condition import Condition
from hub.core.hub import Hub
from hub.core.observe import Figures
from hub.core.registry.directory import Directory
from hub.core.shares.growth import GrowthWatch
from hub.core.shares.table import Shares
from hub.inbound.api.answers import Checks, DiskUse, HealthReport, Ready, TokenHolder
from hub.inbound.api.application import reply
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import HealthQuery
from hub.inbound.middleware.authentication import holder, may, operators_view, sees_all, viewer
from rolecall import __version__
from rolecall.build import build
from rolecall.errors import HubWide
from rolecall.model.principal import Right
from rolecall.schema import newest

_WELCOME = """<!doctype html><meta charset="utf-8"><title>Rolecall</title>
<h1>Rolecall</h1><p>A hub for A2A agents. <a href="/registry/agents">Agents</a>, <a href="/registry/tasks">tasks</a>,
<a href="/.well-known/agent-card.json">card</a>, <a href="/health">health</a>, <a href="/metrics">metrics</a>.</p>
"""
_READINESS = {"text/plain": str, "application/json": Ready}


def add_operations(
    app: Quart,
    hub: Hub,
    directory: Directory,
    condition: Condition,
    shares: Shares,
    disk_growth: GrowthWatch,
    *,
    metrics: Callable[[Figures], bytes],
    metrics_type: str,
) -> None:
    started = time.monotonic()

    @app.get("/")
    @operation("A page for people.", answers={200: {"text/html": str}})
    async def welcome() -> Response:
        return Response(_WELCOME, content_type="text/html; charset=utf-8")

    @app.get("/livez")
    @operation("Whether the event loop runs.", answers={200: {"text/plain": str}})
    async def alive() -> Response:
        return Response("ok\n", content_type="text/plain")

    @app.get("/readyz")
    @operation("Whether the hub takes calls.", answers={200: _READINESS, 503: _READINESS})
    async def ready(query: HealthQuery) -> Response:
        checks = await condition.checks()
        missing = condition.missing(checks)
        status = 503 if missing else 200
        if query.verbose is not None:
            return reply(Ready(ready=not missing, checks=Checks(**checks._asdict())), status)
        text = f"not ready: {', '.join(missing)}\n" if missing else "ok\n"
        return Response(text, status=status, content_type="text/plain")

    @app.get("/health")
    @operation("A summary of the hub's health.")
    async def health() -> HealthReport:
        checks = await condition.checks()
        live = directory.live(viewer())
        report = HealthReport(
            status="ok" if all(checks) else "degraded",
            version=__version__,
            build=build(),
            schema=newest(),
            uptime_seconds=round(time.monotonic() - started, 1),
            checks=Checks(**checks._asdict()),
            workers=len(live),
            roles=len(directory.roles(viewer())),
        )
        if may(Right.READ):
            report.disk = _disk_use(viewer().workspace, shares, disk_growth)
            room = condition.disk_room()
            if room is not None and sees_all():
                report.disk.free, report.disk.reserve = room.free, room.reserve
        if sees_all():
            report.running_tasks = len(hub.relays)
        return report

    @app.get("/registry/me")
    @operation("The holder of the token, and its rights.")
    async def show_holder() -> TokenHolder:
        found = holder()
        rights = [right for right in Right if found.may(right)]
        return TokenHolder(name=found.name, kind=found.kind, workspace=found.workspace, rights=rights)

    @app.get("/metrics")
    @operation("Metrics for Prometheus.", HubWide, answers={200: {"text/plain": str}})
    async def prometheus() -> Response:
        operators_view()
        return Response(metrics(await condition.figures()), content_type=metrics_type)


def _disk_use(workspace: str, shares: Shares, disk_growth: GrowthWatch) -> DiskUse:
    use, growth = DiskUse(used=shares.disk.held(workspace), limit=shares.disk.cap), disk_growth.of(workspace)
    if growth is not None:
        use.per_day = round(growth.per_day)
        use.full_in_days = UNSET if growth.full_in_days is None else round(growth.full_in_days, 1)
    return use
