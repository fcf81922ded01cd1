"""Usage through real hubs and workers: what the API shows to whom, and that kills lose and repeat no report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.helpers.client import text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import HubProcess, environment, start_hub, start_worker, wait_for

PAGE = blocks_of("docs/howto/usage-and-budgets.md")
WORKERS = "tests.acceptance.callingworkers"
NAMES = {"spender": "spender", "below": "spender_below"}


class Hub:
    """With tokens, and a worker for each of two roles."""

    def __init__(self, hub: HubProcess, tokens: dict[str, str]) -> None:
        self.hub, self.tokens = hub, tokens
        self.http = httpx.Client(trust_env=False, timeout=30)

    def ask(self, who: str, path: str, method: str = "GET") -> httpx.Response:
        return self.http.request(method, self.hub.url + path, headers={"Authorization": f"Bearer {self.tokens[who]}"})

    def usage(self, who: str, query: str = "") -> list[dict[str, Any]]:
        answer = self.ask(who, f"/registry/usage{query}")
        assert answer.status_code == 200, answer.text
        sums: list[dict[str, Any]] = answer.json()["sums"]
        return sums

    def send(self, who: str, text: str, *, wait: bool = True) -> dict[str, Any]:
        params = {**text_message(text), "configuration": {"blocking": wait}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        answer = self.http.post(f"{self.hub.url}/agents/spender/", json=body, headers=headers).json()
        result: dict[str, Any] = answer["result"]
        return result

    def erase(self, query: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("admin", f"/registry/tasks{query}", "DELETE").json()
        return answer


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    kinds = {"anna": Kind.CLIENT, "bert": Kind.CLIENT, "worker": Kind.WORKER, "admin": Kind.ADMIN}
    data = tmp_path / "hub"
    data.mkdir()
    tokens = {
        name: new(data / "tokens.json", Principal(name, kind, roles=("*",)), lasts=None, now=0.0)[0]
        for name, kind in kinds.items()
    }
    with ExitStack() as closing:
        running = Hub(closing.enter_context(start_hub(data)), tokens)
        env = {"ROLECALL_TOKEN": tokens["worker"]}
        for role in ("spender", "below"):
            log = tmp_path / f"{role}.log"
            closing.enter_context(start_worker(f"{WORKERS}:{NAMES[role]}", f"{role}:a", running.hub.url, log=log, env=env))
        yield running
        running.http.close()
        running.hub.kill9()


def cents(count: int, **members: Any) -> dict[str, Any]:
    """The sum of so many reports of the workers."""
    amount = f"{count / 100:.2f}".rstrip("0").rstrip(".")
    return {"input_tokens": 8 * count, "output_tokens": 2 * count, "costs": [{"amount": amount, "currency": "USD"}], **members}


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(PAGE["worker"])
    (tmp_path / "test_writer.py").write_text(PAGE["test"])
    (name,) = re.findall(r"async def (test_\w+)", PAGE["test"])
    script = f"import asyncio, test_writer; asyncio.run(test_writer.{name}())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_the_client_of_the_page_gives_a_budget_and_its_command_reads_the_sums(hub: Hub, tmp_path: Path) -> None:
    script = PAGE["caller"].replace('"planner", "bees"', '"spender", "small 2"')
    shell = Shell(tmp_path, hub.hub.url)
    shell.env["ROLECALL_TOKEN"] = hub.tokens["anna"]
    (tmp_path / "caller.py").write_text(script)
    assert shell.run("python caller.py").stdout == "1 2 \n"
    (task,) = hub.ask("anna", "/registry/tasks").json()["tasks"]
    (node,) = hub.ask("anna", f"/registry/tasks/{task['id']}/tree").json()["tasks"]
    assert node["budget"]["cost"] == {"amount": "2.5", "currency": "USD"}
    command = re.sub(r"since=[\d-]+&until=[\d-]+", f"since={datetime.now(UTC).date()}", PAGE["sums"])
    asked = command.replace("http://127.0.0.1:8420", hub.hub.url).replace("curl", 'curl -H "X-API-Key: $ROLECALL_TOKEN"')
    assert json.loads(shell.run(asked).stdout)["sums"] == [cents(2, role="spender", model="small")]


def test_tasks_and_trees_show_what_was_used(hub: Hub) -> None:
    root = hub.send("anna", "small 3 below")
    own = {"model": "small", "input_tokens": 24, "output_tokens": 6, "cost": {"amount": "0.03", "currency": "USD"}}
    assert [task["usage"] for task in hub.ask("anna", "/registry/tasks").json()["tasks"]] == [[own], [own]]
    tree = hub.ask("anna", f"/registry/tasks/{root['id']}/tree").json()
    assert [(item["task"]["role"], item["task"]["usage"]) for item in tree["tasks"]] == [("spender", [own]), ("below", [own])]
    both = {"model": "small", "input_tokens": 48, "output_tokens": 12, "cost": {"amount": "0.06", "currency": "USD"}}
    assert tree["usage"] == [both]
    (plain,) = [hub.send("anna", "small 0")]
    assert "usage" not in hub.ask("anna", "/registry/tasks?limit=1").json()["tasks"][0]
    assert hub.ask("anna", f"/registry/tasks/{plain['id']}/tree").json()["usage"] == []


def test_sums_are_told_apart_as_asked_and_shown_to_whom_they_concern(hub: Hub) -> None:
    hub.send("anna", "small 3 below")
    hub.send("bert", "large 2")
    today = datetime.now(UTC).date()
    assert hub.usage("admin") == [
        cents(3, role="below", holder="anna"),
        cents(3, role="spender", holder="anna"),
        cents(2, role="spender", holder="bert"),
    ]
    assert hub.usage("admin", "?by=model") == [cents(2, model="large"), cents(6, model="small")]
    assert hub.usage("admin", "?holder=bert&by=day&by=role") == [cents(2, role="spender", day=today.isoformat())]
    assert hub.usage("anna", "?by=holder") == [cents(6, holder="anna")]
    assert hub.usage("anna", "?by=holder&holder=anna&role=below") == [cents(3, holder="anna")]
    assert hub.usage("worker") == []
    before, after = today - timedelta(days=1), today + timedelta(days=1)
    assert hub.usage("admin", f"?until={before}") == hub.usage("admin", f"?since={after}") == []
    assert hub.usage("admin", f"?since={before}&until={after}&by=holder") == [
        cents(6, holder="anna"),
        cents(2, holder="bert"),
    ]
    listed, query = list[str](), "/registry/usage?limit=2"
    while query:
        page = hub.ask("admin", query).json()
        listed += [f"{one['role']} {one['holder']}" for one in page["sums"]]
        query = f"/registry/usage?limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert listed == ["below anna", "spender anna", "spender bert"]


def test_wrong_queries_are_refused(hub: Hub) -> None:
    assert hub.ask("anna", "/registry/usage?holder=bert").status_code == 403
    for query in (
        "by=task",
        "by=",
        "since=yesterday",
        "since=2026-13-01",
        "until=1700000000",
        "limit=0",
        "limit=1001",
        "cursor=x",
        "cursor=%C3%A4",
        "by=role&cursor=YQpi",
    ):
        answer = hub.ask("anna", f"/registry/usage?{query}")
        assert (answer.status_code, answer.json()["reason"]) == (400, "INVALID_PARAMS"), query
    assert hub.usage("anna", "?since=0001-01-01&until=9999-12-31&cursor=YQpi") == []


def test_an_erased_holder_leaves_sums_without_a_name(hub: Hub) -> None:
    first = hub.send("anna", "small 3")
    context = hub.send("anna", "small 2")["contextId"]
    hub.send("bert", "small 1")
    assert hub.ask("anna", f"/registry/tasks/{first['id']}", "DELETE").json()["erased"] == 1
    assert hub.ask("anna", f"/registry/tasks?context_id={context}", "DELETE").json()["erased"] == 1
    assert hub.usage("admin", "?by=holder") == [cents(5, holder="anna"), cents(1, holder="bert")]
    assert hub.erase("?holder=anna") == {"erased": 0, "more": False}
    assert hub.usage("admin", "?by=holder") == [cents(5, holder=None), cents(1, holder="bert")]
    assert hub.usage("anna") == []


def test_kills_of_the_hub_lose_and_repeat_no_report(hub: Hub, tmp_path: Path) -> None:
    task = hub.send("anna", f"small {tmp_path / 'enough'}", wait=False)["id"]
    for _ in range(3):
        before = hub.usage("anna", "?by=holder")
        wait_for(lambda before=before: hub.usage("anna", "?by=holder") != before)  # type: ignore[misc]
        time.sleep(0.1)
        hub.hub.kill9()
        hub.hub = start_hub(hub.hub.data_dir, port=hub.hub.port)
    (tmp_path / "enough").touch()
    wait_for(lambda: bool(hub.ask("anna", "/registry/tasks?state=completed").json()["tasks"]), 30)
    words = hub.ask("anna", f"/registry/tasks/{task}/artifacts/1").text.split()
    assert words == [str(number) for number in range(1, len(words) + 1)]
    assert hub.usage("anna", "?by=holder") == [cents(len(words), holder="anna")]
    (of_tree,) = hub.ask("anna", f"/registry/tasks/{task}/tree").json()["usage"]
    assert of_tree["input_tokens"] == 8 * len(words)
