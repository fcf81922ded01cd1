"""The floor answers the benchmark's calls, and what its clients got is in its database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.figures import Case
from tests.bench.machine import Cores
from tests.bench.proxies import FLOOR, FLOOR_FILE, Proxy, missing_tools, start_floor
from tests.bench.rig import Bench, stored_by
from tests.bench.turns import measure
from tests.helpers.client import text_message

pytestmark = pytest.mark.skipif(bool(missing_tools(())), reason="there is no C compiler")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), Cores.choose(), {FLOOR: start_floor}) as bench:
        yield bench


@pytest.fixture
def floor(bench: Bench) -> Iterator[Proxy]:
    with bench.started([FLOOR]) as (floor,):
        yield floor


@pytest.mark.parametrize(
    "case",
    [
        Case("plain", "send", 8, 1, seconds=0.2),
        Case("back to back", "stream", 8, 20, seconds=0.2),
        Case("paced", "stream", 50, 5, interval_us=20_000, seconds=0.2),
    ],
    ids=lambda case: case.title,
)
def test_a_round_with_the_floor_is_honest(bench: Bench, floor: Proxy, case: Case) -> None:
    bench.plan(case.events, case.interval_us)
    sample, problems = measure(bench, floor, case)
    assert problems == []
    assert sample.rate > 0


def called(floor: Proxy, method: str) -> list[dict[str, Any]]:
    """The answers of one call. Those of a stream have the cursors 1, 2, 3 …"""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": text_message("hi")}
    answer = httpx.post(f"http://127.0.0.1:{floor.port}/", json=body, trust_env=False)
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    frames = [frame.split("\n") for frame in answer.text.removesuffix("\n\n").split("\n\n")]
    assert [line for line, _ in frames] == [f"id: {number}" for number in range(1, len(frames) + 1)]
    return [json.loads(line.removeprefix("data: ")) for _, line in frames]


@pytest.mark.parametrize(("method", "count"), [("message/send", 1), ("message/stream", 5)])
def test_an_event_reaches_the_client_as_it_is_stored(bench: Bench, floor: Proxy, method: str, count: int) -> None:
    bench.plan(5, 1000)
    answers = called(floor, method)
    assert {answer["id"] for answer in answers} == {7}
    events = [answer["result"] for answer in answers]
    assert len(events) == count
    assert {event["id" if event["kind"] == "task" else "taskId"] for event in events} == {"floor-1"}
    with closing(sqlite3.connect(floor.data / FLOOR_FILE)) as db:
        assert [json.loads(body) for (body,) in db.execute("select body from event order by place")] == events
        assert db.execute("select id, state, last from task").fetchall() == [("floor-1", "completed", count)]


def test_an_event_that_is_missing_in_the_store_is_noticed(bench: Bench, floor: Proxy, tmp_path: Path) -> None:
    bench.plan(5, 0)
    called(floor, "message/stream")
    stored = stored_by(floor)
    assert stored is not None
    assert stored.newest(1) == [{"id": "floor-1", "state": "completed", "events": 5}]
    assert len(stored.fetch("floor-1", "bench")["artifacts"][0]["parts"]) == 3
    with closing(sqlite3.connect(floor.data / FLOOR_FILE)) as db:
        db.execute("delete from event where place = (select min(place) + 2 from event)")
        db.commit()
    assert stored.newest(1) == [{"id": "floor-1", "state": "completed", "events": 4}]
    assert len(stored.fetch("floor-1", "bench")["artifacts"][0]["parts"]) == 2
    assert "error" in stored.fetch("floor-2", "bench")
