"""Answers that a client does not take are memory that the hub holds: a workspace holds its part of it and no more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.acceptance.loadclients import StreamReader
from tests.acceptance.neighbours.rig import BUSY, UNSENT, WORKERS, Neighbours, neighbours
from tests.helpers.client import text_message
from tests.helpers.processes import wait_for


def rpc(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Large(NamedTuple):
    pair: Neighbours
    task: str
    """Of the busy workspace, with an answer of 8 MB."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    with neighbours(tmp_path_factory.mktemp("large")) as pair, ExitStack() as workers:
        pair.add_worker(workers, f"{WORKERS}:large", "large:b", BUSY)
        yield Large(pair, pair.send(BUSY, "8000000", "large")["result"]["id"])


def unread(pair: Neighbours, request: dict[str, Any]) -> StreamReader:
    """A client that asks and reads nothing."""
    body = json.dumps(request)
    head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {pair.tokens[BUSY, 'client']}\r\n"
    return StreamReader(pair.hub.port, f"POST / HTTP/1.1\r\n{head}\r\n{body}".encode(), parse=False)


def reasons(answers: Sequence[dict[str, Any]]) -> list[str]:
    return [answer["error"]["data"][0]["reason"] for answer in answers if "error" in answer]


def test_a_batch_that_asks_for_400_megabytes_gets_what_one_batch_may_hold(large: Large) -> None:
    pair, task = large
    with pair.unharmed() as harm:
        answers = pair.ask(BUSY, "POST", "/", [rpc("tasks/get", number, id=task) for number in range(50)]).json()
    print(f"one batch of 50 answers of 8 MB: {harm.growth:+.0f} MB")
    assert [answer["id"] for answer in answers] == list(range(50))
    assert sum("result" in answer for answer in answers) == 1 and reasons(answers) == ["OVERLOADED"] * 49
    refused = [answer["error"]["message"] for answer in answers if "error" in answer]
    assert all("ROLECALL_MAX_BATCH_ANSWER" in text for text in refused)
    assert sum("The call was not made" in text for text in refused) >= 36


def test_clients_that_do_not_read_their_large_answers_leave_the_memory_to_others(large: Large) -> None:
    pair, task = large
    with pair.unharmed() as harm, ExitStack() as clients:
        for number in range(30):
            method = "tasks/resubscribe" if number % 2 else "tasks/get"
            clients.enter_context(unread(pair, rpc(method, id=task)))
        while "error" not in (answer := pair.rpc(BUSY, "tasks/get", {"id": task}, "large")):
            clients.enter_context(unread(pair, rpc("tasks/get", id=task)))
        refused = answer["error"]["message"]
        assert "ROLECALL_MAX_UNSENT_PER_WORKSPACE" in refused and "its answer of about 80" in refused
        # What is small is answered.
        assert "result" in pair.send(BUSY, "10", "large")
    print(f"30 clients that do not read 8 MB each: {harm.growth:+.0f} MB")
    wait_for(lambda: pair.used(UNSENT) == 0)
    assert "result" in pair.rpc(BUSY, "tasks/get", {"id": task}, "large")


def test_batches_make_as_many_tasks_as_the_rate_allows(tmp_path: Path) -> None:
    with neighbours(tmp_path, pause=0.1, max_rate=50) as pair, ExitStack() as workers:
        pair.add_worker(workers, f"{WORKERS}:echo", "echo:b", BUSY)
        began, answers = time.monotonic(), list[dict[str, Any]]()
        with pair.unharmed():
            for number in range(28):
                sends = [rpc("message/send", entry, **text_message(f"{number}.{entry}")) for entry in range(50)]
                answer = pair.ask(BUSY, "POST", "/agents/echo/", sends)
                answers += answer.json() if answer.status_code == 200 else []
        allowed = 100 + 50 * (time.monotonic() - began)
        made = sum("result" in answer for answer in answers)
        print(f"28 batches of 50 at 50 calls a second: {made} tasks of {allowed:.0f} allowed")
        assert 100 <= made <= allowed
        errors = [answer["error"] for answer in answers if "error" in answer]
        assert errors and all("ROLECALL_MAX_RATE" in error["message"] for error in errors)
        assert all(float(error["data"][0]["metadata"]["retryAfter"]) >= 1 for error in errors)


@pytest.mark.soak
def test_large_answers_and_batches_do_not_slow_a_neighbour(large: Large) -> None:
    pair, task = large
    idle = pair.idle()
    until = time.monotonic() + 20
    with pair.unharmed() as harm, ExitStack() as clients:
        while time.monotonic() < until:
            pair.ask(BUSY, "POST", "/", [rpc("tasks/get", number, id=task) for number in range(50)])
            pair.ask(BUSY, "POST", "/agents/large/", [rpc("message/send", n, **text_message("70000")) for n in range(50)])
            clients.enter_context(unread(pair, rpc("tasks/resubscribe", id=task)))
            clients.enter_context(unread(pair, rpc("tasks/get", id=task)))
    print(f"large answers: {harm.check_latency(idle)}")
