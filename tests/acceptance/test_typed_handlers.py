"""Typed handlers through a hub: the pages do what they show, and every caller sees schemas, progress and refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rolecall.model.card import PROGRESS_EXTENSION, SCHEMAS_EXTENSION
from rolecall.protocol.cards import skills
from tests.helpers.client import call
from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROOT, Process, environment
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs

PAGE = blocks_of("docs/howto/typed-handlers.md")
EXAMPLE = blocks_of("examples/05_typed/README.md")
OTHER = """
from pydantic import BaseModel
from rolecall import Worker

worker = Worker("shop")


class Box(BaseModel):
    width: int


@worker.skill("box")
async def box(box: Box) -> None: ...


worker.run()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typed")
    for name, text in {"shop": PAGE["worker"], "caller": PAGE["caller"], "other": OTHER}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "test_shop.py").write_text(PAGE["test"])
    return folder


@pytest.fixture(scope="module", params=reachable_hubs()[:1])
def hub(request: pytest.FixtureRequest, folder: Path) -> Iterator[ReachableHub]:
    """With the worker of the page."""
    with request.param(folder / "hub") as hub, start(hub, folder, "shop.py", "shop:a"):
        yield hub


@contextmanager
def start(hub: ReachableHub, folder: Path, script: str, name: str, log: Path | None = None) -> Iterator[None]:
    """A worker, once the hub lists it."""
    log = log or folder / f"{script}.log"
    env = {**hub.for_workers, "ROLECALL_INSTANCE": name.partition(":")[2]}
    with Process((sys.executable, script), log=log, env=env, cwd=folder, name=name) as worker:
        worker.wait_until(lambda: hub.shows(name))
        yield


def run(hub: ReachableHub, folder: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv], env=environment(hub.for_callers), cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def card(hub: ReachableHub, version: str = "") -> Any:
    headers = {"A2A-Version": version} if version else {}
    return httpx.get(f"{hub.url}/agents/shop/.well-known/agent-card.json", headers=headers, trust_env=False).json()


def test_the_caller_of_the_page_prints_what_it_shows(hub: ReachableHub, folder: Path) -> None:
    assert run(hub, folder, "caller.py") == PAGE["called"]
    assert PAGE["refused"] in PAGE["called"]


def test_the_test_of_the_page_passes(hub: ReachableHub, folder: Path) -> None:
    name = re.findall(r"async def (test_\w+)", PAGE["test"])[0]
    run(hub, folder, "-c", f"import asyncio, test_shop; asyncio.run(test_shop.{name}())")


def test_the_schemas_are_on_the_cards_of_the_worker_and_of_its_role(hub: ReachableHub, folder: Path) -> None:
    shown = json.loads(PAGE["card"])
    for found in (card(hub), card(hub, "0.3"), card(hub, "1.0")):
        extension = next(one for one in found["capabilities"]["extensions"] if one["uri"] == SCHEMAS_EXTENSION)
        assert extension == shown | ({"required": False} if "required" in extension else {})
    assert [skill.id for skill in skills(card(hub))] == ["shop", "price", "scan"]
    with start(hub, folder, "other.py", "shop:b"):
        merged = {skill.id: skill.input_schema for skill in skills(card(hub))}
        assert merged["box"] == {
            "properties": {"width": {"type": "integer"}},
            "required": ["width"],
            "title": "Box",
            "type": "object",
        }
        assert merged["price"] == shown["params"]["skills"]["price"]["inputSchema"]


WRONG = {"items": [{"what": "tea", "price": "much"}]}


def test_a_mismatch_is_invalid_params_in_every_version_and_leaves_no_task(hub: ReachableHub) -> None:
    tasks = f"{hub.url}/registry/tasks"
    before = httpx.get(tasks, trust_env=False).json()["total"]
    old = {"kind": "message", "role": "user", "messageId": "m-old", "parts": [{"kind": "data", "data": WRONG}]}
    new = {"role": "ROLE_USER", "messageId": "m-new", "parts": [{"data": WRONG}]}
    url = f"{hub.url}/agents/shop/"
    body = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": new, "metadata": {"skill": "price"}}}
    answers = [
        call(url, "message/send", {"message": old, "metadata": {"skill": "price"}}),
        httpx.post(url, json=body, headers={"A2A-Version": "1.0"}, trust_env=False).json(),
        call(f"{hub.url}/", "message/send", {"message": {**old, "metadata": {"skill": "price"}}}),
    ]
    problem = 'message.parts[0].data does not match Order: "items[0].price" must be a number.'
    assert [(answer["error"]["code"], answer["error"]["message"]) for answer in answers] == [(-32602, problem)] * 3
    assert httpx.get(tasks, trust_env=False).json()["total"] == before


def test_callers_without_the_sdk_read_progress_and_its_text(hub: ReachableHub) -> None:
    file = {"kind": "file", "file": {"bytes": "MQ==", "name": "a"}}
    old = {"kind": "message", "role": "user", "messageId": "m-file", "parts": [file, file]}
    body = {"jsonrpc": "2.0", "id": "1", "method": "message/stream", "params": {"message": old, "metadata": {"skill": "scan"}}}
    answer = httpx.post(f"{hub.url}/agents/shop/", json=body, trust_env=False).text
    frames = [json.loads(line[5:])["result"] for line in answer.splitlines() if line.startswith("data:")]
    statuses = [frame["status"]["message"] for frame in frames if "message" in frame.get("status", {})]
    assert [message["metadata"] for message in statuses] == [{PROGRESS_EXTENSION: {"done": n, "total": 2}} for n in (1, 2)]
    assert [part.get("text") or part["data"] for part in statuses[1]["parts"]] == ["read a", {"so far": 2.0}]
    assert frames[-1]["status"]["state"] == "completed"


def test_an_unknown_skill_is_refused_with_the_list(hub: ReachableHub) -> None:
    message = {"kind": "message", "role": "user", "messageId": "m-skill", "parts": [{"kind": "text", "text": "x"}]}
    answer = call(f"{hub.url}/agents/shop/", "message/send", {"message": message, "metadata": {"skill": "prise"}})
    text = 'No live worker of "shop" offers the skill "prise". There is: price, scan, shop. Did you mean price?'
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32000, text)
    assert answer["error"]["data"][0]["reason"] == "SKILL_UNKNOWN"


@pytest.mark.parametrize("opened", reachable_hubs()[1:])
def test_the_example_prints_what_its_readme_shows(opened: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "hub") as hub, start(hub, ROOT, EXAMPLE["run"].split()[1], "shop:a", tmp_path / "log"):
        assert run(hub, ROOT, *EXAMPLE["try"].split()[1:]) == EXAMPLE["expected"]
