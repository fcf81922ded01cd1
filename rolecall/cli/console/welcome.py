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
from rolecall.cli.connect import open_hub
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.output import duration
from rolecall.protocol.dialects import DIALECTS
from rolecall.setting import DEFAULT_HUB
from worker_sdk import AgentInfo, HubClient, RolecallError

_PATIENCE = 20.0
"""Seconds that workers may take until the welcome comes without them."""
_POLL = 0.05


async def workers_among(programs: Sequence[Program], hub: ChosenHub) -> dict[str, AgentInfo]:
    """Those that callers can reach, by the name of their program: all, or those that were ready in time."""
    expected = {program.name for program in programs if program.enrols}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE
    found: dict[str, AgentInfo] = {}
    async with open_hub(hub.address) as api:
        while not (found and expected <= found.keys()) and loop.time() < deadline:
            await asyncio.sleep(_POLL)
            agents = await _ready(api)
            found = {program.name: agent for program in programs for agent in agents if _is(program, agent)}
    return found


def _is(program: Program, agent: AgentInfo) -> bool:
    return agent.instance == program.instance and program.role in (None, agent.role)


async def _ready(api: HubClient) -> Sequence[AgentInfo]:
    try:
        return await api.discover_agents(state="ready")
    except RolecallError:
        return ()


def welcome(hub: ChosenHub, programs: Sequence[Program], found: Mapping[str, AgentInfo], took: float) -> Iterator[str]:
    place = f"({hub.own.place})" if hub.own is not None else "(was running, and is left running)"
    yield ""
    yield f"  rolecall {__version__} · A2A {', '.join(DIALECTS)} · Python {platform.python_version()}"
    yield f"  hub      {hub.address.url}   {place}"
    yield f"  ready in {duration(took)}"
    for program in programs:
        if program.name in found:
            yield f"  + {found[program.name].name} ready ({program.note or program.name})"
        elif program.enrols:
            yield f"  ! {program.name} is not ready yet"
    yield ""
    yield "  Next, in another terminal:"
    for line in things_to_try(hub, list(dict.fromkeys(agent.role for agent in found.values()))):
        yield f"    {line}"
    yield ""


def things_to_try(hub: ChosenHub, roles: Sequence[str]) -> Iterator[str]:
    """Commands that can be pasted into any shell on this machine, in any folder."""
    rolecall, url = executable(), hub.address.url
    option = "" if url == DEFAULT_HUB else f" --hub {url}"
    if hub.address.token is not None and hub.own is not None:
        yield hub.own.token_command
    for role in roles[:2]:
        yield f'{rolecall} send{option} {role} "hello"'
    for role in roles[:1]:
        yield f"curl -s {url}/agents/{role}/.well-known/agent-card.json"
    if not roles:
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
