"""What is open ends within two seconds of the end of its token, revoked or expired; what runs for other tokens goes on."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from hub.identity import tokens
from rolecall.model.principal import Kind, Principal
from tests.acceptance.syncs.workers import PAUSE
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for

WITHIN = 3.0
"""Two seconds are promised; the machine of the tests does other work too."""
LASTS = 4.0
"""Seconds until a token expires that is not revoked."""
WAITS = {"metadata": {"waitSeconds": 60}}
COUNTER = "tests.acceptance.syncs.workers:counter"


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def message() -> dict[str, Any]:
    return text_message(uuid4().hex)


@dataclass
class World:
    hub: HubProcess
    folder: Path
    http: httpx.Client

    def new_token(self, name: str, kind: Kind = Kind.CLIENT, lasts: float | None = None) -> tuple[str, tokens.TokenEntry]:
        principal = Principal(name, kind, roles=("*",) if kind is Kind.WORKER else ())
        made = tokens.new(self.folder / "hub" / "tokens.json", principal, lasts=lasts, now=time.time())
        agents, headers = f"{self.hub.url}/registry/agents", {"Authorization": f"Bearer {made[0]}"}
        wait_for(lambda: self.http.get(agents, headers=headers).status_code == 200)
        return made

    def end(self, entry: tokens.TokenEntry) -> float:
        """Revoke the token, or wait until it expires. When that was, on the monotonic clock."""
        if entry.expires is None:
            tokens.revoke(self.folder / "hub" / "tokens.json", entry.id)
            return time.monotonic()
        return time.monotonic() + entry.expires - time.time()

    def ask(self, token: str, method: str, params: dict[str, Any], role: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post(f"{self.hub.url}/agents/{role}/", json=rpc(method, params), headers=headers)

    def state(self, token: str, task: str, role: str) -> tuple[str, str]:
        """Of a task: its state, and the reason if the hub has ended it."""
        found = self.ask(token, "tasks/get", {"id": task}, role).json()["result"]
        return found["status"]["state"], ((found.get("metadata") or {}).get("rolecall") or {}).get("reason", "")

    def enrol(self, token: str, name: str, url: str) -> None:
        role, _, instance = name.partition(":")
        answer = self.http.put(
            f"{self.hub.url}/registry/agents/{role}/{instance}",
            json={"url": url, "ttl_seconds": 3600, "capabilities": {"streaming": True}},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 201, answer.text


@dataclass
class Open:
    """A request that is open in the name of a token, on a thread: how it is answered, and when that has ended."""

    name: str
    status: int = 0
    lines: list[str] = field(default_factory=list)
    ended: float = 0.0
    error: str = ""

    def last_event(self) -> dict[str, Any]:
        return dict(json.loads(self.lines[-1].removeprefix("data: ")))


def opened(world: World, token: str) -> Sequence[Open]:
    """One of each. The worker of the role `silent` takes a call and sends nothing."""
    rest_message = {"role": "ROLE_USER", "messageId": uuid4().hex, "parts": [{"text": "hi"}]}
    asked = {
        "stream": ("POST", "/agents/counter/", rpc("message/stream", message())),
        "stream over REST": ("POST", "/agents/counter/message:stream", {"message": rest_message}),
        "stream before its first event": ("POST", "/agents/silent/", rpc("message/stream", message())),
        "call": ("POST", "/agents/counter/", rpc("message/send", message())),
        "call before its first event": ("POST", "/agents/silent/", rpc("message/send", message())),
        "call over REST": ("POST", "/agents/counter/message:send", {"message": {**rest_message, "messageId": uuid4().hex}}),
        "batch": ("POST", "/agents/counter/", [rpc("message/send", message()), rpc("message/send", message())]),
        "call that waits for a worker": ("POST", "/agents/absent/", rpc("message/send", {**message(), **WAITS})),
        "stream that waits for a worker": ("POST", "/agents/absent/", rpc("message/stream", {**message(), **WAITS})),
        "feed": ("GET", "/registry/events", None),
        "feed of tasks": ("GET", "/registry/tasks/events?after=0", None),
    }
    uses = []
    for name, (method, path, body) in asked.items():
        uses.append(use := Open(name))
        threading.Thread(target=_read, args=(world, token, use, method, path, body), daemon=True).start()
    return uses


def _read(world: World, token: str, use: Open, method: str, path: str, body: Any) -> None:
    try:
        headers = {"Authorization": f"Bearer {token}"}
        with world.http.stream(method, world.hub.url + path, json=body, headers=headers) as answer:
            use.status = answer.status_code
            use.lines.extend(line for line in answer.iter_lines() if line.strip())
    except httpx.HTTPError as error:
        use.error = type(error).__name__
    use.ended = time.monotonic()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("revocation")
    tokens.new(folder / "hub" / "tokens.json", Principal("first", Kind.ADMIN), lasts=None, now=0)  # it locks the hub
    with ExitStack() as closing:
        http = closing.enter_context(httpx.Client(trust_env=False, timeout=30, limits=httpx.Limits(max_connections=None)))
        world = World(closing.enter_context(start_hub(folder / "hub", keep_alive=0.5, drain=1)), folder, http)
        worker, _ = world.new_token("farm", Kind.WORKER)
        env = {"ROLECALL_TOKEN": worker, "ENOUGH": str(folder / "enough"), "RUNS": str(folder / "runs")}
        closing.enter_context(start_worker(COUNTER, "counter:a", world.hub.url, log=folder / "counter.log", env=env))
        silent = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        world.enrol(worker, "silent:a", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        yield world
        (folder / "enough").touch()  # a worker that is asked to end waits for its tasks


@pytest.mark.parametrize("lasts", [None, LASTS], ids=["revoked", "expired"])
def test_what_a_client_has_open_ends_with_its_token(world: World, lasts: float | None) -> None:
    holder = f"anna-{lasts}"
    other, _ = world.new_token(holder)
    token, entry = world.new_token(holder, lasts=lasts)
    task = world.ask(token, "message/send", {**message(), "configuration": {"blocking": False}}, "counter").json()["result"][
        "id"
    ]
    uses = opened(world, token)
    wait_for(lambda: len(uses[0].lines) > 3 and len(uses[1].lines) > 3)
    time.sleep(0.5)
    assert not [use for use in uses if use.ended]
    ended = world.end(entry)
    wait_for(lambda: all(use.ended for use in uses), 15)
    took = {use.name: use.ended - ended for use in uses}
    print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items()))
    assert all(0 <= seconds < WITHIN for seconds in took.values()), took
    by_name = {use.name: use for use in uses}
    for name in ("stream", "stream before its first event", "stream that waits for a worker"):
        assert by_name[name].last_event()["error"]["data"][0]["reason"] == "UNAUTHENTICATED", name
    assert by_name["stream over REST"].last_event()["error"]["details"][0]["reason"] == "UNAUTHENTICATED"
    for name in (name for name in by_name if "call" in name or name == "batch"):
        assert (by_name[name].status, by_name[name].error) == (401, ""), name
        assert "was revoked, or has expired" in by_name[name].lines[0], name
    for name in ("feed", "feed of tasks"):
        assert (by_name[name].status, by_name[name].error) == (200, ""), name
    assert any(task in line for line in by_name["feed of tasks"].lines)
    # Coming back with it is refused, and what was begun runs on for the holder's other token.
    assert world.ask(token, "tasks/resubscribe", {"id": task}, "counter").status_code == 401
    assert world.state(other, task, "counter") == ("working", "")


@pytest.mark.parametrize("lasts", [None, 2 * LASTS], ids=["revoked", "expired"])
def test_a_worker_gets_nothing_more_after_its_token(world: World, tmp_path: Path, lasts: float | None) -> None:
    """Its lease would last an hour."""
    client, _ = world.new_token("bert")
    token, entry = world.new_token("lost", Kind.WORKER, lasts=lasts)
    runs, role = tmp_path / "runs", f"counter:{'revoked' if lasts is None else 'expired'}"
    env = {"ROLECALL_TOKEN": token, "ENOUGH": str(tmp_path / "enough"), "RUNS": str(runs)}
    with start_worker(COUNTER, role, world.hub.url, log=tmp_path / "worker.log", env=env) as worker:
        send = {**message(), "configuration": {"blocking": False}}
        task = world.ask(client, "message/send", send, role).json()["result"]["id"]
        assert world.state(client, task, role) == ("working", "")
        ended = world.end(entry)
        wait_for(lambda: world.state(client, task, role) == ("failed", "WORKER_LOST"), 15)
        took = time.monotonic() - ended
        print(f"task of the worker {took:.2f} s")
        assert 0 <= took < WITHIN
        before = runs.read_text()
        refused = world.ask(client, "message/send", message(), role).json()["error"]["data"][0]["reason"]
        assert refused == "NO_LIVE_WORKER"
        time.sleep(4 * PAUSE)
        assert worker.alive and runs.read_text() == before
        (tmp_path / "enough").touch()
