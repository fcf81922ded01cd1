"""Who is ready, and what people are told to try."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli.console import welcome as module
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.console.welcome import welcome, workers_among
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk.config import HubAddress

SHOUTER = Program("shouter:1", (), Path(), {}, instance="shouter:1", enrols=True)
ECHO = Program("parrot:1", (), Path(), {}, instance="parrot:1", enrols=True)
CODER = Program("coder:announced", (), Path(), {}, role="coder", instance="coder:announced", note="http://127.0.0.1:9")
SCRIPT = Program("script:1", (), Path(), {}, instance="script:1")


def agent(name: str, epoch: int = 1, **more: Any) -> dict[str, Any]:
    role, _, instance = name.partition(":")
    return {"name": name, "role": role, "instance_id": instance, "epoch": epoch, "state": "ready", **more}


def page(*agents: dict[str, Any]) -> Response:
    return Response({"agents": list(agents), "next_cursor": None})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 5.0)
    monkeypatch.setattr(module, "_PATIENCE_WITH_OTHERS", 0.2)


async def found(hub: ScriptedHub, *programs: Program, before: Mapping[str, object] | None = None) -> list[str]:
    """The lines of the welcome."""
    chosen = ChosenHub(HubAddress(hub.url, None))
    workers = await workers_among(programs, chosen, before or {})
    return [line.strip() for line in welcome(chosen, programs, workers, 0.5)]


def of(lines: list[str], *marks: str) -> list[str]:
    return [line for line in lines if line.startswith(marks)]


async def test_the_lease_of_a_process_before_does_not_make_a_worker_ready(hub: ScriptedHub) -> None:
    hub.on("GET /registry/agents", page(agent("shouter:1")), page(agent("shouter:1")), page(agent("shouter:1", epoch=2)))
    assert of(await found(hub, SHOUTER, before={"shouter:1": 1}), "+", "!") == ["+ shouter:1 ready"]
    assert hub.calls().count("GET /registry/agents") == 3


async def test_the_real_name_is_shown_and_what_it_is_called_here_if_that_differs(hub: ScriptedHub) -> None:
    hub.on("GET /registry/agents", page(agent("echo:parrot:1"), agent("shouter:1"), agent("shouter:other")))
    assert of(await found(hub, SHOUTER, ECHO), "+", "!") == ["+ shouter:1 ready", "+ echo:parrot:1 ready (parrot:1)"]


async def test_an_announced_server_is_listed_and_waited_for_no_longer_than_a_moment(hub: ScriptedHub) -> None:
    hub.on("GET /registry/agents", page(agent("shouter:1")), page(agent("shouter:1"), agent("coder:announced")))
    ready = of(await found(hub, SHOUTER, CODER, SCRIPT), "+", "!")
    assert ready == ["+ shouter:1 ready", "+ coder:announced ready (http://127.0.0.1:9)"]
    hub.on("GET /registry/agents", page(agent("shouter:1")))
    async with asyncio.timeout(2):
        waits = of(await found(hub, SHOUTER, CODER, SCRIPT), "+", "!")
    assert waits == ["+ shouter:1 ready", "! coder:announced is not ready yet (http://127.0.0.1:9)"]


async def test_what_is_suggested_is_what_the_worker_takes(hub: ScriptedHub) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    params = {"skills": {"shouter": {"inputSchema": schema}}}
    extensions = [{"uri": "https://rolecall.dev/ext/schemas/v1", "params": params}]
    card = {"skills": [{"id": "shouter", "name": "shouter"}], "capabilities": {"extensions": extensions}}
    hub.on("GET /registry/agents", page(agent("echo:parrot:1"), agent("shouter:1")))
    hub.on("GET /registry/agents/shouter:1", Response(agent("shouter:1", card=card)))
    hub.on("GET /registry/agents/echo:parrot:1", Response({"reason": "LEASE_UNKNOWN"}, 404))
    lines = await found(hub, SHOUTER, ECHO)
    rolecall, other = (line.partition(" send ")[2] for line in lines if " send " in line)
    assert rolecall == f"--hub {hub.url} shouter --data '{{\"total\": 1}}'"
    assert other == f'--hub {hub.url} echo "hello"'
