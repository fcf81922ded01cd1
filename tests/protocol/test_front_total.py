"""Any request to the A2A application, in any dialect and binding, gets an answer or an error of ours."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from rolecall.protocol.dialects import read_method
from rolecall.protocol.text.jsontext import dump, parse
from tests.flow.callers import enrol
from tests.flow.conftest import System, open_system
from tests.helpers.scripted import chunk, message, status, task
from tests.protocol.transcripts import HttpRequest, app_of, exchange
from tests.unit.protocol.contents import mutate
from tests.unit.protocol.test_methods import METHODS
from tests.unit.protocol.test_requests_total import CALLS, SENDS

_TASK = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMES = [name for name, _, _ in METHODS]
_PREFIXES = ("", "/v1", "/echo", "/agents/echo", "/a2a/rest")
_ADDRESSES = (
    *("POST /message:send", "POST /message:stream", "GET /tasks", "GET /tasks/{}", "POST /tasks/{}:cancel"),
    *("GET /tasks/{}:subscribe", "POST /tasks/{}/pushNotificationConfigs", "GET /tasks/{}/pushNotificationConfigs"),
    *("GET /tasks/{}/pushNotificationConfigs/p", "DELETE /tasks/{}/pushNotificationConfigs/p"),
)
_QUERIES = (
    "",
    "?pageSize=3",
    "?historyLength=0",
    "?status=working",
    "?pageToken=1/x",
    "?includeArtifacts=true",
    "?tenant=echo",
)


@pytest.mark.parametrize("seed", range(4))
async def test_no_request_is_an_internal_error(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(seed)
    async with open_system() as system:
        await enrol(system, "echo:a", random.choice(("0.3", "1.0")))
        app = app_of(system)
        tasks, served, refused = ["none"], 0, 0
        for number in range(250):
            _plan(system, random)
            answered = await exchange(app, _random_request(random, random.choice(tasks), number))
            tasks = [*tasks[-9:], *_TASK.findall(answered[2])[:1]]
            assert "Internal error" not in answered[2]
            refused += '"error"' in answered[2]
            served += '"error"' not in answered[2]
    assert min(served, refused) > 15
    assert not [record for record in caplog.records if record.exc_info]


def _random_request(random: Random, known: str, number: int) -> HttpRequest:
    # No call waits for a worker here, because the clock does not advance.
    document: dict[str, Any] = parse(
        dump(random.choice((*SENDS.values(), *CALLS))).replace(b'"waitSeconds":1', b'"waitSeconds":0')
    )
    for holder in (document, document.get("message", {})):
        for name in ("taskId", "id", "contextId", "sessionId", "referenceTaskIds"):
            if name in holder and random.random() < 0.8:
                holder.pop(name)
        if random.random() < 0.5:
            holder["id" if random.random() < 0.5 else "taskId"] = known
    for _ in range(random.randrange(3)):
        mutated = mutate(document, random)
        document = mutated if isinstance(mutated, dict) else document
    headers = [("a2a-version", random.choice(("", "1.0", "0.3", "0.1")))]
    headers += [("last-event-id", str(random.randrange(4)))] if random.random() < 0.3 else []
    headers += [("idempotency-key", random.choice("abc"))] if random.random() < 0.2 else []
    if random.random() < 0.5:
        method = random.choice(_NAMES)
        assert read_method(method, None)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": document}
        return HttpRequest("POST", random.choice(("/", "/agents/echo/", "/agents/echo:a")), body, tuple(headers))
    method, _, path = random.choice(_ADDRESSES).partition(" ")
    return HttpRequest(
        method, random.choice(_PREFIXES) + path.format(known) + random.choice(_QUERIES), document, tuple(headers)
    )


def _plan(system: System, random: Random) -> None:
    """Plan the worker's answer to the next call; the worker uses one id for all tasks."""
    system.forwarder.scripts.clear()
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    begins = (task("input-required", "which?"),), (message("yes"),), (task(), chunk("x", False))
    system.forwarder.plan("echo:a", *random.choice(begins), status(random.choice(("completed", "failed"))))
