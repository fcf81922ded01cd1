"""The audit log of a whole application: what it says of each request, and what a hub does that cannot write it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.app import create_app
from hub.identity.tokens import FILE_NAME, new, revoke
from hub.settings.model import Settings
from rolecall.errors import ConfigError
from rolecall.model.principal import Kind, Principal
from tests.helpers.client import text_message
from tests.helpers.scripted import ScriptedForwarder, status, task

pytestmark = pytest.mark.real_time

FULL = Path("/dev/full")
PEER = "127.0.0.1"
OFFER = {"url": "http://127.0.0.1:9/", "boot": "b", "capabilities": {"streaming": True}}


class HubWithAudit:
    """A hub whose audit log has the path `path`, called with the token of an admin."""

    def __init__(self, folder: Path, http: httpx.AsyncClient, forwarder: ScriptedForwarder) -> None:
        self.path = folder / "audit.log"
        self.http = http
        self.forwarder = forwarder

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    async def post(self, method: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        self.forwarder.plan("echo:a", task(), status("completed"))
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.http.post("/agents/echo", json=body, headers=headers)

    async def checks(self) -> tuple[int, bool]:
        answer = await self.http.get("/readyz?verbose=1")
        return answer.status_code, answer.json()["checks"]["audit"]

    async def lost(self) -> float:
        (line,) = [one for one in (await self.http.get("/metrics")).text.splitlines() if one.startswith("a2a_hub_audit_lost")]
        return float(line.split()[1])

    def put_at(self, target: Path) -> None:
        """The path leads there from now on."""
        self.path.with_name("next").symlink_to(target)
        self.path.with_name("next").replace(self.path)


@asynccontextmanager
async def started(folder: Path, **settings: Any) -> AsyncIterator[HubWithAudit]:
    token, _ = new(folder / FILE_NAME, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    forwarder = ScriptedForwarder()
    chosen = Settings(data_dir=folder, store="memory:", tokens=folder / FILE_NAME, audit_log=folder / "audit.log", **settings)
    async with create_app(chosen, port=1, wrap=lambda parts: replace(parts, forwarder=forwarder)).test_app() as running:
        application: Any = running.app
        transport, shown = httpx.ASGITransport(application), {"X-API-Key": token}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=shown) as http:
            yield HubWithAudit(folder, http, forwarder)


async def test_an_entry_names_the_token_the_peer_the_task_and_the_outcome(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    reader, reader_entry = new(path, Principal("board", Kind.READER), lasts=None, now=0.0)
    expired, expired_entry = new(path, Principal("old", Kind.CLIENT), lasts=1.0, now=0.0)
    worker, worker_entry = new(path, Principal("farm", Kind.WORKER, roles=("echo",)), lasts=None, now=0.0)
    async with started(tmp_path) as hub:
        lease = (await hub.http.put("/registry/agents/echo/a", json=OFFER, headers={"X-API-Key": worker})).json()
        refused = await hub.http.put("/registry/agents/planner/a", json=OFFER, headers={"X-API-Key": worker})
        assert refused.status_code == 403
        ids = [(await hub.post("message/send", text_message("x"))).json()["result"]["id"]]
        frames = (await hub.post("message/stream", text_message("y"))).text
        ids.append(json.loads(frames.partition("data: ")[2].partition("\n")[0])["result"]["id"])
        assert (await hub.post("tasks/cancel", {"id": ids[0]})).json()["error"]["code"] == -32002
        hub.forwarder.scripts.clear()
        proxy_headers = {"X-Forwarded-For": "192.0.2.7, 10.0.0.1"}
        for token in (expired, "rc_wrong", reader):
            await hub.post("message/send", text_message("x"), **{"X-API-Key": token, **proxy_headers})
        assert (await hub.http.post("/registry/agents/echo:a/drain", headers={"X-API-Key": reader})).status_code == 403
        assert (await hub.http.delete("/registry/tasks?holder=me")).json()["erased"] == 2
        proof = {"epoch": lease["epoch"], "lease": lease["lease"]}
        await hub.http.request("DELETE", "/registry/agents/echo:a", json=proof, headers={"X-API-Key": worker})
        entries = hub.entries()
    own = entries[2]["token_id"]
    assert all(entry.pop("peer") == PEER for entry in entries)
    assert [entry.get("forwarded") for entry in entries[5:9]] == [proxy_headers["X-Forwarded-For"]] * 3 + [None]
    facts = ("who", "event", "on", "outcome", "token_id", "task", "count")
    assert [tuple(entry.get(fact) for fact in facts) for entry in entries] == [
        ("farm", "enrol", "echo:a", "ok", worker_entry.id, None, None),
        ("farm", "enrol", "planner:a", "forbidden", worker_entry.id, None, None),
        ("me", "message/send", "echo", "ok", own, ids[0], None),
        ("me", "message/stream", "echo", "ok", own, ids[1], None),
        ("me", "tasks/cancel", "echo", "task_not_cancelable", own, ids[0], None),
        (None, "turned away", "/agents/echo", "unauthenticated", expired_entry.id, None, None),
        (None, "turned away", "/agents/echo", "unauthenticated", None, None, None),
        ("board", "turned away", "/agents/echo", "forbidden", reader_entry.id, None, None),
        ("board", "turned away", "/registry/agents/echo:a/drain", "forbidden", reader_entry.id, None, None),
        ("me", "erase", "holder me, context any", "ok", own, None, 2),
        ("farm", "withdraw", "echo:a", "ok", worker_entry.id, None, None),
    ]


async def test_the_hub_records_tokens_that_were_made_and_revoked_while_it_runs(tmp_path: Path) -> None:
    async with started(tmp_path) as hub:
        token, entry = new(tmp_path / FILE_NAME, Principal("anna", Kind.CLIENT, "acme"), lasts=None, now=0.0)
        await seen(hub, 1)
        revoke(tmp_path / FILE_NAME, entry.id)
        await seen(hub, 2)
        assert (await hub.http.get("/registry/agents", headers={"X-API-Key": token})).status_code == 401
        facts = ("event", "who", "workspace", "on", "token_id")
        holder = ("anna", "acme", "client", entry.id)
        assert [tuple(entry.get(fact) for fact in facts) for entry in hub.entries()] == [
            ("token created", *holder),
            ("token revoked", *holder),
            ("turned away", None, None, "/registry/agents", entry.id),
        ]


async def seen(hub: HubWithAudit, count: int) -> None:
    for _ in range(100):
        if len(hub.entries()) >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(hub.entries())


async def test_an_audit_log_that_cannot_be_written_changes_no_answer(tmp_path: Path) -> None:
    async with started(tmp_path) as hub:
        hub.put_at(FULL)
        assert (await hub.http.put("/registry/agents/echo/a", json=OFFER)).status_code == 201
        assert (await hub.post("message/send", text_message("x"))).json()["result"]["status"]["state"] == "completed"
        assert "completed" in (await hub.post("message/stream", text_message("y"))).text
        assert (await hub.checks(), await hub.lost()) == ((200, False), 3)
        assert (await hub.http.get("/health")).json()["status"] == "degraded"
        hub.put_at(tmp_path / "mended")
        for _ in range(200):
            if (await hub.checks())[1]:
                break
            await asyncio.sleep(0.02)
        assert (await hub.checks(), await hub.lost()) == ((200, True), 3)
        assert [(entry["event"], entry["count"]) for entry in hub.entries()] == [("entries lost", 3)]


async def test_where_the_audit_log_is_required_nothing_begins_that_it_cannot_record(tmp_path: Path) -> None:
    async with started(tmp_path, audit_required=True) as hub:
        lease = (await hub.http.put("/registry/agents/echo/a", json=OFFER)).json()
        assert [entry["event"] for entry in hub.entries()] == ["begins", "enrol"]
        hub.put_at(FULL)
        refused = await hub.post("message/send", text_message("x"))
        assert (refused.status_code, refused.json()["error"]["data"][0]["reason"]) == (503, "OVERLOADED")
        assert "ROLECALL_AUDIT_REQUIRED" in refused.text
        assert (await hub.http.put("/registry/agents/echo/b", json=OFFER)).status_code == 503
        assert (await hub.http.delete("/registry/tasks?holder=me")).status_code == 503
        assert (hub.forwarder.calls, (await hub.checks())) == ([], (503, False))
        assert (await hub.http.get("/registry/tasks")).json()["total"] == 0
        proof = {"epoch": lease["epoch"], "lease": lease["lease"]}
        assert (await hub.http.post("/registry/agents/echo:a/heartbeat", json=proof)).status_code == 200
        hub.put_at(tmp_path / "mended")
        assert (await hub.post("message/send", text_message("x"))).json()["result"]["status"]["state"] == "completed"
        assert [entry["event"] for entry in hub.entries()] == ["entries lost", "begins", "message/send"]


def test_a_hub_does_not_start_with_an_audit_log_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        create_app(Settings(data_dir=tmp_path, audit_log=tmp_path / "none" / "audit.log"), port=1)
    assert refused.value.message.startswith(f"audit_log: {tmp_path / 'none' / 'audit.log'} cannot be opened for writing")
