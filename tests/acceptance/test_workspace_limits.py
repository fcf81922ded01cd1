"""Two workspaces on one hub: one at its limit is refused with the name of the setting, and the other is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.access_world import World, make_tokens
from tests.helpers.client import text_message
from tests.helpers.processes import start_hub, start_worker, wait_for

TASKS, STREAMS = 3, 2
HERE, ALSO_HERE, OTHER_WORKSPACE = "owner", "other", "stranger"


class Counters:
    """A worker in each workspace that counts until the file `enough` exists."""

    def __init__(self, world: World, enough: Path) -> None:
        self.world = world
        self.enough = enough

    def begin(self, who: str) -> dict[str, Any]:
        params = {**text_message(uuid4().hex), "configuration": {"blocking": False}}
        answer: dict[str, Any] = self.world.ask(who, "POST", "/agents/counter/", _body("message/send", params)).json()
        return answer

    def stream(self, who: str, open_streams: ExitStack, method: str = "message/stream", **params: Any) -> str:
        """The first frame of a stream that stays open."""
        headers = {"Authorization": f"Bearer {self.world.tokens[who]}"}
        body = _body(method, params or text_message(uuid4().hex))
        asked = self.world.http.stream("POST", f"{self.world.hub.url}/agents/counter/", json=body, headers=headers)
        lines = _keep_open(open_streams, open_streams.enter_context(asked).iter_lines())
        return next(line for line in lines if line.startswith("data: "))

    def feed(self, who: str, open_streams: ExitStack) -> int:
        headers = {"Authorization": f"Bearer {self.world.tokens[who]}"}
        asked = self.world.http.stream("GET", f"{self.world.hub.url}/registry/events", headers=headers)
        answer = open_streams.enter_context(asked)
        if answer.status_code == 200:
            next(_keep_open(open_streams, answer.iter_lines()))
        return answer.status_code


def _body(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def _keep_open(open_streams: ExitStack, lines: Iterator[str]) -> Iterator[str]:
    """Keeps a reference: an iterator without one closes its connection."""
    open_streams.callback(lambda: lines)
    return lines


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Counters]:
    tokens = make_tokens(tmp_path / "hub")
    limits = {"max_open_tasks_per_workspace": TASKS, "max_streams_per_workspace": STREAMS, "keep_alive": 0.5}
    pool = httpx.Limits(max_connections=None)
    with (
        start_hub(tmp_path / "hub", **limits) as hub,
        httpx.Client(trust_env=False, timeout=20, limits=pool) as http,
        ExitStack() as workers,
    ):
        for holder in ("admin", "other-farm"):
            env = {"ROLECALL_TOKEN": tokens[holder], "ENOUGH": str(tmp_path / "enough"), "RUNS": str(tmp_path / "runs")}
            source = "tests.acceptance.syncs.workers:counter"
            workers.enter_context(start_worker(source, "counter:a", hub.url, log=tmp_path / f"{holder}.log", env=env))
        yield Counters(World(hub, tokens, http), tmp_path / "enough")
        (tmp_path / "enough").touch()  # a worker that is asked to end waits for its tasks


def test_a_workspace_at_its_task_limit_is_refused_and_the_other_is_served(counters: Counters) -> None:
    setting = "ROLECALL_MAX_OPEN_TASKS_PER_WORKSPACE"
    for _ in range(TASKS):
        assert "result" in counters.begin(HERE)
    for who in (HERE, ALSO_HERE):
        error = counters.begin(who)["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "OVERLOADED")
        assert setting in error["message"]
    message = {"message": {"role": "ROLE_USER", "messageId": uuid4().hex, "parts": [{"text": "x"}]}}
    refused = counters.world.ask(HERE, "POST", "/agents/counter/message:send", message, **{"A2A-Version": "1.0"})
    assert (refused.status_code, refused.json()["error"]["details"][0]["reason"]) == (503, "OVERLOADED")
    assert setting in refused.json()["error"]["message"] and int(refused.headers["retry-after"]) > 0
    for _ in range(TASKS):
        assert "result" in counters.begin(OTHER_WORKSPACE)
    assert "error" in counters.begin(OTHER_WORKSPACE)
    counters.enough.touch()
    wait_for(lambda: "result" in counters.begin(HERE))


def test_a_workspace_at_its_stream_limit_is_refused_and_the_other_is_served(counters: Counters) -> None:
    setting = "ROLECALL_MAX_STREAMS_PER_WORKSPACE"
    with ExitStack() as open_streams:
        for who in (HERE, ALSO_HERE):
            assert '"result":' in counters.stream(who, open_streams)
        task = counters.begin(HERE)["result"]["id"]
        for refused in (
            counters.stream(ALSO_HERE, open_streams),
            counters.stream(HERE, open_streams, "tasks/resubscribe", id=task),
        ):
            assert '"code":-32000' in refused and "OVERLOADED" in refused and setting in refused
        for _ in range(STREAMS):
            assert '"result":' in counters.stream(OTHER_WORKSPACE, open_streams)
        assert setting in counters.stream(OTHER_WORKSPACE, open_streams)
    with ExitStack() as open_streams:
        wait_for(lambda: '"result":' in counters.stream(HERE, open_streams, "tasks/resubscribe", id=task))


def test_registry_feeds_count_against_the_stream_limit(counters: Counters) -> None:
    with ExitStack() as open_streams:
        for who in (HERE, OTHER_WORKSPACE):
            assert [counters.feed(who, open_streams) for _ in range(STREAMS + 1)] == [*[200] * STREAMS, 503]
    with ExitStack() as open_streams:
        wait_for(lambda: counters.feed(HERE, open_streams) == 200)
