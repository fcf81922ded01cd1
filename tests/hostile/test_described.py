"""What the OpenAPI description says of the hub's own APIs, held against a hub by schemathesis: requests that fit it and that do
not, each refused or answered as it says, never as a bug, in a bounded memory, and with nobody else kept waiting.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema_rs
import pytest

from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess as Hub
from tests.helpers.processes import Process, start_hub
from tests.helpers.raw_server import RawServer, always, answer
from tests.hostile.pulse import resident

pytestmark = pytest.mark.usefixtures("unharmed")

SCHEMATHESIS = str(Path(sys.executable).with_name("st"))
TOKEN = "rc_" + "a" * 43
ENDLESS = "/registry/events"
ROOM = 30
"""Megabytes that may stay behind: what is enrolled, and what the allocator keeps."""

# Of all addresses that a worker may name only these are the machine's own: whatever else is made up is refused, and rightly.
WORKERS_ARE_AT = {"enum": ["http://127.0.0.1:9/", "http://localhost:9/a?b=c", "http://127.0.0.1:9/%2f"]}

# `POST /` is A2A's, and a PUT that looks like a heartbeat enrols an instance of that name. Page tokens are the hub's own.
SETTINGS = """
[[operations]]
include-path-regex = "^/$|/(drain|probe|heartbeat)$"
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
[[operations]]
include-path-regex = "/(dead-letters|tasks)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400]
"""


NOT_MADE_UP = {
    "POST /registry/agents/{name}/drain",
    "GET /registry/tasks/{task}/decision",
    "POST /registry/push/dead-letters/{task}/{config}/{cursor}/redeliver",
}
EVERY_PHASE = "coverage,fuzzing,stateful"
FEW, MANY = 6, 100


class Door(NamedTuple):
    headers: dict[str, str]
    settings: dict[str, Any]
    phases: str
    """For the short run: between them they have all."""
    without: str = ""
    """The check that makes no sense here."""


class Tried(NamedTuple):
    cases: int
    accepted: set[str]
    """Operations that took some of them."""


OPEN = Door({}, {}, "coverage", "ignored_auth")
LOCKED = Door({"Authorization": f"Bearer {TOKEN}"}, {"admin_token": TOKEN, "max_rate": 0, "max_at_once": 0}, "fuzzing,stateful")
DONE = answer(b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}}')


@pytest.fixture(scope="module", params=[pytest.param(OPEN, id="open"), pytest.param(LOCKED, id="locked")])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen


@pytest.fixture(scope="module")
def hub(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with start_hub(tmp_path_factory.mktemp("hub"), log_format="json", push_allowed_hosts="127.0.0.1", **door.settings) as hub:
        yield hub


def described(hub: Hub, door: Door) -> dict[str, Any]:
    found = httpx.get(f"{hub.url}/registry/openapi.json", headers=door.headers, trust_env=False)
    document: dict[str, Any] = found.raise_for_status().json()
    return document


def tried(hub: Hub, door: Door, folder: Path, *, phases: str, examples: int, seed: int) -> Tried:
    """No case may fail."""
    document = described(hub, door)
    for name in ("Enrolment", "FlatMembers"):
        document["components"]["schemas"][name]["properties"]["url"] = WORKERS_ARE_AT
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(SETTINGS)
    report = folder / f"report-{seed}.json"
    words = [SCHEMATHESIS, "run", "openapi.json", "--url", hub.url, "--exclude-path", ENDLESS, "--phases", phases]
    words += ["-n", str(examples), "--seed", str(seed), "--no-color", "--generation-database", "none"]
    words += ["--report", "json", "--report-json-path", str(report)]
    words += [word for name, value in door.headers.items() for word in ("-H", f"{name}: {value}")]
    words += ["--exclude-checks", door.without] if door.without else []
    with Process(words, log=folder / f"said-{seed}.txt", cwd=folder, name="schemathesis") as run:
        code = run.wait(timeout=60 + 5 * examples)
    assert code == 0, run.output[-8000:]
    told = json.loads(report.read_text())
    assert told["operations"]["tested"] == told["operations"]["selected"] == told["operations"]["total"] - 1
    return Tried(told["test_cases"]["generated"], {name for name, rates in told["valid_rates"].items() if _accepted(rates)})


def _accepted(rates: dict[str, dict[str, int]]) -> int:
    return sum(phase["accepted"] for phase in rates.values())


def operations(hub: Hub, door: Door) -> set[str]:
    return {f"{verb.upper()} {path}" for path, item in described(hub, door)["paths"].items() for verb in item}


def test_the_hub_keeps_to_its_description(hub: Hub, door: Door, tmp_path: Path) -> None:
    before = resident(hub.pid)
    found = tried(hub, door, tmp_path, phases=door.phases, examples=FEW, seed=1)
    print(f"{found.cases} cases, {resident(hub.pid) - before:.0f} MB more")
    assert found.cases > 150
    assert resident(hub.pid) - before < ROOM
    if "coverage" in door.phases:
        assert operations(hub, door) - found.accepted <= NOT_MADE_UP | {f"GET {ENDLESS}"}


@pytest.mark.soak
def test_the_hub_keeps_to_its_description_for_long(hub: Hub, door: Door, tmp_path: Path) -> None:
    tried(hub, door, tmp_path, phases=EVERY_PHASE, examples=FEW, seed=1)
    before = resident(hub.pid)
    for seed in range(2, 5):
        found = tried(hub, door, tmp_path, phases=EVERY_PHASE, examples=MANY, seed=seed)
        print(f"{found.cases} cases, {resident(hub.pid) - before:.0f} MB more")
        assert found.cases > 3000
        assert resident(hub.pid) - before < ROOM


def test_an_empty_cursor_is_the_first_page(hub: Hub, door: Door) -> None:
    for path in ("/registry/agents", "/registry/tasks", "/registry/push/dead-letters"):
        assert httpx.get(f"{hub.url}{path}?cursor=", headers=door.headers, trust_env=False).status_code == 200, path


def test_a_method_that_an_address_does_not_take_is_answered_with_those_that_it_does(hub: Hub, door: Door) -> None:
    answer = httpx.patch(f"{hub.url}/registry/tasks", headers=door.headers, trust_env=False)
    assert (answer.status_code, answer.json()["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_what_a_task_leaves_behind_is_as_described(hub: Hub, door: Door) -> None:
    """What made-up requests do not get to: a task with its decision and a dead letter, and the feed."""
    components = described(hub, door)["components"]

    def check(name: str, document: Any) -> Any:
        jsonschema_rs.validate({"$ref": f"#/components/schemas/{name}", "components": components}, document)
        return document

    async with (
        RawServer(always(DONE)) as worker,
        RawServer(always(answer(b"", status="404 Not Found"))) as receiver,
        httpx.AsyncClient(base_url=hub.url, headers=door.headers, trust_env=False, timeout=20) as http,
    ):

        async def read(path: str) -> Any:
            return (await http.get(path)).raise_for_status().json()

        offer = {"url": worker.url, "card": {"skills": [{"id": "s", "tags": ["t"]}]}, "labels": {"a": "b"}, "capacity": 3.0}
        check("Lease", (await http.put("/registry/agents/echo/a", json=offer)).json())
        push = {"pushNotificationConfig": {"id": "c", "url": receiver.url}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {**text_message("x"), "configuration": push}}
        task = (await http.post("/agents/echo/", json=body)).json()["result"]["id"]
        check("AgentAndCard", await read("/registry/agents/echo:a"))
        check("Agent", (await http.post("/registry/agents/echo:a/drain")).json())
        check("ProbeResult", (await http.post("/registry/agents/echo:a/probe")).json())
        assert check("Tasks", await read("/registry/tasks?role=echo"))["tasks"][0]["id"] == task
        check("DecisionItem", await read(f"/registry/tasks/{task}/decision"))
        check("Ready", await read("/readyz?verbose"))
        assert "running_tasks" in check("HealthReport", await read("/health"))
        letter = (await _until(lambda: read("/registry/push/dead-letters"), "dead_letters"))["dead_letters"][0]
        check("DeadLetterItem", letter)
        again = await http.post(f"/registry/push/dead-letters/{task}/c/{letter['cursor']}/redeliver")
        check("Redelivery", again.json())
        assert check("Change", await _first_change(http))["event"] == "enrolled"


async def _until(read: Callable[[], Awaitable[Any]], member: str) -> Any:
    async with asyncio.timeout(10):
        while not (found := await read())[member]:  # noqa: ASYNC110  it happens in another process
            await asyncio.sleep(0.02)
    return found


async def _first_change(http: httpx.AsyncClient) -> Any:
    async with asyncio.timeout(10), http.stream("GET", f"{ENDLESS}?after=0") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return await anext(json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: "))
