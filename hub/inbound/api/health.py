"""Liveness, readiness, health and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from quart import Quart, Response, request

from hub.core.hub import Hub
from hub.core.registry.directory import Directory
from hub.inbound.api.application import reply
from hub.inbound.api.operation_doc import documented
from hub.inbound.api.shapes import Checks, HealthQuery, HealthReport, Ready
from hub.inbound.middleware.authentication import operators_view, sees_all, viewer
from hub.ports.engine import Engine
from rolecall import __version__
from rolecall.errors import HubWide, StoreError

_WELCOME = """<!doctype html><meta charset="utf-8"><title>Rolecall</title>
<h1>Rolecall</h1><p>A hub for A2A agents. <a href="/registry/agents">Agents</a>, <a href="/registry/tasks">tasks</a>,
<a href="/.well-known/agent-card.json">card</a>, <a href="/health">health</a>, <a href="/metrics">metrics</a>.</p>
"""
_READINESS = {"text/plain": str, "application/json": Ready}


def add_operations(
    app: Quart, hub: Hub, directory: Directory, engine: Engine, *, metrics: Callable[[], bytes], metrics_type: str
) -> None:
    started = time.monotonic()

    @app.get("/")
    @documented("A page for people.", {200: {"text/html": str}})
    async def welcome() -> Response:
        return Response(_WELCOME, content_type="text/html; charset=utf-8")

    @app.get("/livez")
    @documented("Whether the event loop runs.", {200: {"text/plain": str}})
    async def alive() -> Response:
        return Response("ok\n", content_type="text/plain")

    @app.get("/readyz")
    @documented("Whether the hub takes calls.", {200: _READINESS, 503: _READINESS}, query=HealthQuery)
    async def ready() -> Response:
        checks = await _checks(hub, engine)
        missing = [name for name, fine in checks.items() if not fine]
        status = 503 if missing else 200
        if "verbose" in request.args:
            report: Ready = {"ready": not missing, "checks": checks}
            return reply(report, status)
        text = f"not ready: {', '.join(missing)}\n" if missing else "ok\n"
        return Response(text, status=status, content_type="text/plain")

    @app.get("/health")
    @documented("A summary of the hub's health.", {200: HealthReport})
    async def health() -> Response:
        checks = await _checks(hub, engine)
        live = directory.live(viewer())
        document: HealthReport = {
            "status": "ok" if all(checks.values()) else "degraded",
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - started, 1),
            "checks": checks,
            "workers": len(live),
            "roles": len(directory.roles(viewer())),
        }
        if sees_all():
            document["running_tasks"] = len(hub.relays)
        return reply(document)

    @app.get("/metrics")
    @documented("Metrics for Prometheus.", {200: {"text/plain": str}}, HubWide)
    async def prometheus() -> Response:
        operators_view()
        return Response(metrics(), content_type=metrics_type)


async def _checks(hub: Hub, engine: Engine) -> Checks:
    try:
        await engine.ping()
        store = True
    except StoreError:
        store = False
    return {"store": store, "taking_calls": not hub.draining}
