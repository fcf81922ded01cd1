"""What people read once the workers are ready: where the hub is, who is there, and commands to try."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rolecall import __version__
from rolecall.cli.agents.example_call import example_call
from rolecall.cli.connect import open_hub
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.output import duration
from rolecall.protocol.dialects import DIALECTS
from rolecall.setting import DEFAULT_HUB
from worker_sdk import AgentInfo, HubClient, RolecallError

_PATIENCE = 20.0
"""Seconds that workers may take until the welcome comes without them."""
_PATIENCE_WITH_OTHERS = 3.0
"""Seconds more that servers may take which somebody else may start, such as those that are announced."""
_POLL = 0.05
_SHOWN = 2
"""Roles that people get a command for."""

Epochs = Mapping[str, object]
"""The epoch of each worker, by its name: another process has another one."""


async def live_workers(api: HubClient, programs: Sequence[Program]) -> Sequence[AgentInfo]:
    """Those under the names of these programs; none if the hub does not tell."""
    try:
        agents = await api.discover_agents()
    except RolecallError:
        return ()
    return [agent for agent in agents if any(program.is_worker(agent.name) for program in programs)]


async def workers_among(programs: Sequence[Program], hub: ChosenHub, before: Epochs) -> dict[str, AgentInfo]:
    """Those that callers can reach, by the name of their program: all, or those that were ready in time. `before`: those of an
    earlier console, which are gone, whatever the hub still knows of them.
    """
    expected = {program.name for program in programs if program.enrols}
    others = {program.name for program in programs if program.role is not None}
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    found: dict[str, AgentInfo] = {}
    async with open_hub(hub.address) as api:
        while not (found and expected | others <= found.keys()) and loop.time() < until:
            await asyncio.sleep(_POLL)
            agents = [agent for agent in await _ready(api) if before.get(agent.name) != agent.raw.get("epoch")]
            found = {program.name: agent for program in programs for agent in agents if program.is_worker(agent.name)}
            if found and expected <= found.keys():
                until = min(until, loop.time() + _PATIENCE_WITH_OTHERS)
        return {name: await _with_card(api, agent) for name, agent in found.items()}


async def _ready(api: HubClient) -> Sequence[AgentInfo]:
    try:
        return await api.discover_agents(state="ready")
    except RolecallError:
        return ()


async def _with_card(api: HubClient, agent: AgentInfo) -> AgentInfo:
    try:
        return await api.agent(agent.name)
    except RolecallError:  # it has just gone
        return agent


def welcome(hub: ChosenHub, programs: Sequence[Program], found: Mapping[str, AgentInfo], took: float) -> Iterator[str]:
    place = f"({hub.own.place})" if hub.own is not None else "(was running, and is left running)"
    yield ""
    yield f"  rolecall {__version__} · A2A {', '.join(DIALECTS)} · Python {platform.python_version()}"
    yield f"  hub      {hub.address.url}   {place}"
    yield f"  ready in {duration(took)}"
    for program in programs:
        if program.name in found:
            name = found[program.name].name
            yield f"  + {name} ready{_in_brackets(program.name if program.name != name else '', program.note)}"
        elif program.enrols or program.role is not None:
            yield f"  ! {program.name} is not ready yet{_in_brackets(program.note)}"
    yield ""
    yield "  Next, in another terminal:"
    workers: dict[str, AgentInfo] = {}
    for agent in found.values():
        workers.setdefault(agent.role, agent)
    for line in things_to_try(hub, workers):
        yield f"    {line}"
    yield ""


def _in_brackets(*notes: str) -> str:
    text = ", ".join(note for note in notes if note)
    return f" ({text})" if text else ""


def things_to_try(hub: ChosenHub, workers: Mapping[str, AgentInfo]) -> Iterator[str]:
    """Commands that can be pasted into any shell on this machine, in any folder. `workers`: one for each role."""
    rolecall, url = executable(), hub.address.url
    option = "" if url == DEFAULT_HUB else f" --hub {url}"
    if hub.address.token is not None and hub.own is not None:
        yield hub.own.token_command
    for role, worker in list(workers.items())[:_SHOWN]:
        yield f"{rolecall} send{option} {example_call(role, worker.card)}"
    for role in list(workers)[:1]:
        yield f"curl -s {url}/agents/{role}/.well-known/agent-card.json"
    if not workers:
        yield f"{rolecall} agents ls{option}"


def executable() -> str:
    """How to call this program: by its name if the shell finds it, else by its path."""
    own = Path(sys.executable).with_name("rolecall.exe" if sys.platform == "win32" else "rolecall")
    found = shutil.which("rolecall")
    if found is not None and Path(found).resolve() == own.resolve():
        return "rolecall"
    if not own.exists():
        return f"{sys.executable} -m rolecall.cli"
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)
