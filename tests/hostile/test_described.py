"""The hub against its OpenAPI description, with schemathesis: valid and invalid requests get the described answers, without
internal errors, with limited memory, and without delaying others.
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
from tests.helpers.waiting import until
from tests.hostile.latency import memory_of

pytestmark = pytest.mark.usefixtures("hub_healthy")

COMMAND = str(Path(sys.executable).with_name("st"))
TOKEN = "rc_" + "a" * 43
ENDLESS = ("/registry/events", "/registry/tasks/events")
MEMORY_LIMIT = 30
"""Megabytes that may remain: enrolled workers, and what the allocator keeps."""

# The only generated worker URLs that are allowed are on this machine: all others are refused, correctly.
WORKER_URLS = {"enum": ["http://127.0.0.1:9/", "http://localhost:9/a?b=c", "http://127.0.0.1:9/%2f"]}

# POST to the hub's or a role's own address is A2A's, and a PUT that looks like a heartbeat enrols an instance of that name.
# Page tokens are the hub's own. The largest file is a setting. A file that says that it is JSON is read as such, not as a file.
SETTINGS = r"""
[[operations]]
include-path-regex = '^/$|^/agents/\{role\}/$|/(drain|undrain|probe|heartbeat)$'
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
[[operations]]
include-path-regex = "/(dead-letters|summaries|tasks|usage)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400]
[[operations]]
include-path-regex = "/files"
checks.positive_data_acceptance.expected-statuses = ["2xx", 304, 404, 409, 413, 416]
[[operations]]
include-path-regex = '/files/\{file\}$'
include-method = "GET"
checks.response_schema_conformance.enabled = false
"""


NOT_GENERATED = {
    "POST /registry/agents/{name}/drain",
    "POST /registry/agents/{name}/undrain",
    "POST /registry/tasks/{task}/cancel",
    "GET /registry/summaries/{task}",
    "GET /registry/tasks/{task}/decision",
    "GET /registry/tasks/{task}/events",
    "DELETE /registry/tasks",
    "DELETE /registry/tasks/{task}",
    "GET /registry/tasks/{task}/tree",
    "GET /registry/tasks/{task}/artifacts/{number}",
    "DELETE /registry/files/{file}",
    "GET /registry/files/{file}",
    "PATCH /registry/files/{file}",
    "POST /registry/push/dead-letters/{task}/{config}/{cursor}/redeliver",
}
EVERY_PHASE = "coverage,fuzzing,stateful"
FEW, MANY = 6, 100


class Variant(NamedTuple):
    headers: dict[str, str]
    settings: dict[str, Any]
    phases: str
    """For the short run: both variants together cover all phases."""
    without: str = ""
    """The check that does not apply here."""


class RunResult(NamedTuple):
    count: int
    accepted: set[str]
    """Operations that accepted some of them."""


OPEN = Variant({}, {}, "coverage", "ignored_auth")
LOCKED = Variant(
    {"Authorization": f"Bearer {TOKEN}"}, {"admin_token": TOKEN, "max_rate": 0, "max_at_once": 0}, "fuzzing,stateful"
)
DONE = answer(b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}}')


@pytest.fixture(scope="module", params=[pytest.param(OPEN, id="open"), pytest.param(LOCKED, id="locked")])
def variant(request: pytest.FixtureRequest) -> Variant:
    chosen: Variant = request.param
    return chosen


@pytest.fixture(scope="module")
def hub(variant: Variant, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with start_hub(
        tmp_path_factory.mktemp("hub"), log_format="json", push_allowed_hosts="127.0.0.1", **variant.settings
    ) as hub:
        yield hub


def description_of(hub: Hub, variant: Variant) -> dict[str, Any]:
    found = httpx.get(f"{hub.url}/registry/openapi.json", headers=variant.headers, trust_env=False)
    document: dict[str, Any] = found.raise_for_status().json()
    return document


def run_examples(hub: Hub, variant: Variant, folder: Path, *, phases: str, examples: int, seed: int) -> RunResult:
    """Runs schemathesis; no case may fail."""
    document = description_of(hub, variant)
    for name in ("Enrolment", "FlatEnrolment"):
        document["components"]["schemas"][name]["properties"]["url"] = WORKER_URLS
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(SETTINGS)
    report = folder / f"report-{seed}.json"
    words = [COMMAND, "run", "openapi.json", "--url", hub.url, "--phases", phases]
    words += [word for path in ENDLESS for word in ("--exclude-path", path)]
    words += ["-n", str(examples), "--seed", str(seed), "--no-color", "--generation-database", "none"]
    words += ["--report", "json", "--report-json-path", str(report)]
    words += [word for name, value in variant.headers.items() for word in ("-H", f"{name}: {value}")]
    words += ["--exclude-checks", variant.without] if variant.without else []
    with Process(words, log=folder / f"output-{seed}.txt", cwd=folder, name="schemathesis") as run:
        code = run.wait(timeout=60 + 5 * examples)
    assert code == 0, run.output[-8000:]
    results = json.loads(report.read_text())
    counts = results["operations"]
    assert counts["tested"] == counts["selected"] == counts["total"] - len(ENDLESS)
    return RunResult(
        results["test_cases"]["generated"], {name for name, rates in results["valid_rates"].items() if _accepted(rates)}
    )


def _accepted(rates: dict[str, dict[str, int]]) -> int:
    return sum(phase["accepted"] for phase in rates.values())


def operations(hub: Hub, variant: Variant) -> set[str]:
    return {f"{method.upper()} {path}" for path, item in description_of(hub, variant)["paths"].items() for method in item}


def test_the_hub_conforms_to_its_description(hub: Hub, variant: Variant, tmp_path: Path) -> None:
    before = memory_of(hub.pid)
    found = run_examples(hub, variant, tmp_path, phases=variant.phases, examples=FEW, seed=1)
    print(f"{found.count} cases, {memory_of(hub.pid) - before:.0f} MB more")
    assert found.count > 150
    assert memory_of(hub.pid) - before < MEMORY_LIMIT
    if "coverage" in variant.phases:
        assert operations(hub, variant) - found.accepted <= NOT_GENERATED | {f"GET {path}" for path in ENDLESS}


@pytest.mark.soak
def test_the_hub_conforms_to_its_description_over_many_requests(hub: Hub, variant: Variant, tmp_path: Path) -> None:
    run_examples(hub, variant, tmp_path, phases=EVERY_PHASE, examples=FEW, seed=1)
    before = memory_of(hub.pid)
    for seed in range(2, 5):
        found = run_examples(hub, variant, tmp_path, phases=EVERY_PHASE, examples=MANY, seed=seed)
        print(f"{found.count} cases, {memory_of(hub.pid) - before:.0f} MB more")
        assert found.count > 3000
        assert memory_of(hub.pid) - before < MEMORY_LIMIT


def test_an_empty_cursor_is_the_first_page(hub: Hub, variant: Variant) -> None:
    for path in ("/registry/agents", "/registry/tasks", "/registry/push/dead-letters"):
        assert httpx.get(f"{hub.url}{path}?cursor=", headers=variant.headers, trust_env=False).status_code == 200, path


def test_a_refused_method_is_answered_with_the_allowed_ones(hub: Hub, variant: Variant) -> None:
    answer = httpx.patch(f"{hub.url}/registry/tasks", headers=variant.headers, trust_env=False)
    assert (answer.status_code, answer.json()["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_the_records_of_a_task_conform_to_the_description(hub: Hub, variant: Variant) -> None:
    """Generated requests do not reach these: a task with its decision and a dead letter, and the feeds."""
    parts = description_of(hub, variant)["components"]

    def check(name: str, document: Any) -> Any:
        jsonschema_rs.validate({"$ref": f"#/components/schemas/{name}", "components": parts}, document)
        return document

    async with (
        RawServer(always(DONE)) as worker,
        RawServer(always(answer(b"", status="404 Not Found"))) as receiver,
        httpx.AsyncClient(base_url=hub.url, headers=variant.headers, trust_env=False, timeout=20) as http,
    ):

        async def read(path: str) -> Any:
            return (await http.get(path)).raise_for_status().json()

        offer = {"url": worker.url, "card": {"skills": [{"id": "s", "tags": ["t"]}]}, "labels": {"a": "b"}, "capacity": 3.0}
        check("Lease", (await http.put("/registry/agents/echo/a", json=offer)).json())
        push = {"pushNotificationConfig": {"id": "c", "url": receiver.url}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {**text_message("x"), "configuration": push}}
        task = (await http.post("/agents/echo/", json=body)).json()["result"]["id"]
        file = check("FileItem", (await http.post("/registry/files?name=a.txt", content=b"x")).json())
        assert (await http.get(f"/registry/files/{file['id']}")).content == b"x"
        check("FileItem", (await http.post("/registry/files", headers={"Upload-Complete": "?0"})).json())
        check("AgentAndCard", await read("/registry/agents/echo:a"))
        check("Agent", (await http.post("/registry/agents/echo:a/drain")).json())
        check("Agent", (await http.post("/registry/agents/echo:a/undrain")).json())
        check("ProbeResult", (await http.post("/registry/agents/echo:a/probe")).json())
        assert check("Tasks", await read("/registry/tasks?role=echo"))["tasks"][0]["id"] == task
        assert check("Tasks", await read("/registry/tasks?all_holders=true"))["tasks"][0]["holder"]
        check("DecisionItem", await read(f"/registry/tasks/{task}/decision"))
        log = check("LogPage", await read(f"/registry/tasks/{task}/events"))
        assert log["events"][-1]["document"]["status"]["state"] == log["events"][-1]["state"] == "completed"
        check("Erased", (await http.delete("/registry/tasks?context_id=nothing")).json())
        check("Ready", await read("/readyz?verbose"))
        assert "running_tasks" in check("HealthReport", await read("/health"))
        letter = (await _until(lambda: read("/registry/push/dead-letters"), "dead_letters"))["dead_letters"][0]
        check("DeadLetterItem", letter)
        again = await http.post(f"/registry/push/dead-letters/{task}/c/{letter['cursor']}/redeliver")
        check("Redelivery", again.json())
        registry, tasks = [await _first_change(http, path) for path in ENDLESS]
        assert check("Change", registry)["event"] == "enrolled"
        assert check("TaskChangeItem", tasks)["event"] == "admitted"


async def _until(read: Callable[[], Awaitable[Any]], member: str) -> Any:
    async def read_member() -> Any:
        found = await read()
        return found if found[member] else None

    return await until(read_member)


async def _first_change(http: httpx.AsyncClient, path: str) -> Any:
    async with asyncio.timeout(10), http.stream("GET", f"{path}?after=0") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return await anext(json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: "))
