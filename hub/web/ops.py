"""Is it alive, is it ready, how is it doing."""

from __future__ import annotations

import time
from collections.abc import Callable

from quart import Quart, Response, request

from hub import __version__
from hub.core.directory import Directory
from hub.core.hub import Hub
from hub.errors import StoreError
from hub.model.a2a import JsonObject
from hub.ports import Engine
from hub.web.auth import operators_view, viewer
from hub.web.pages import reply

_WELCOME = """<!doctype html><meta charset="utf-8"><title>Rolecall</title>
<h1>Rolecall</h1><p>A hub for A2A agents. <a href="/registry/agents">Agents</a>, <a href="/registry/tasks">tasks</a>,
<a href="/.well-known/agent-card.json">card</a>, <a href="/health">health</a>, <a href="/metrics">metrics</a>.</p>
"""


def add_operations(
    app: Quart, hub: Hub, directory: Directory, engine: Engine, *, metrics: Callable[[], bytes], metrics_type: str
) -> None:
    started = time.monotonic()

    @app.get("/")
    async def welcome() -> Response:
        return Response(_WELCOME, content_type="text/html; charset=utf-8")

    @app.get("/livez")
    async def alive() -> Response:
        return Response("ok\n", content_type="text/plain")

    @app.get("/readyz")
    async def ready() -> Response:
        checks = await _checks(hub, engine)
        missing = [name for name, fine in checks.items() if not fine]
        status = 503 if missing else 200
        if "verbose" in request.args:
            return reply({"ready": not missing, "checks": checks}, status)
        text = f"not ready: {', '.join(missing)}\n" if missing else "ok\n"
        return Response(text, status=status, content_type="text/plain")

    @app.get("/health")
    async def health() -> Response:
        checks = await _checks(hub, engine)
        live = directory.live(viewer())
        document: JsonObject = {
            "status": "ok" if all(checks.values()) else "degraded",
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - started, 1),
            "checks": checks,
            "workers": len(live),
            "roles": len(directory.roles(viewer())),
            "running_tasks": len(hub.relays),
        }
        return reply(document)

    @app.get("/metrics")
    async def measured() -> Response:
        operators_view()
        return Response(metrics(), content_type=metrics_type)


async def _checks(hub: Hub, engine: Engine) -> dict[str, bool]:
    try:
        await engine.ping()
        store = True
    except StoreError:
        store = False
    return {"store": store, "taking_calls": not hub.draining}
