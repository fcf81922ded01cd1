"""What `rolecall logs` prints, in the console of the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from rolecall.cli.connect import open_hub
from rolecall.cli.console.console import Console
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.watch.changes import of_task, of_worker
from rolecall.model.a2a import JsonObject
from worker_sdk.errors import AuthError, Forbidden, HubBusy, HubUnreachable, RolecallError, StreamLost

if TYPE_CHECKING:
    from worker_sdk import AgentInfo, HubClient
    from worker_sdk.calling.feed import HubFeed

PREFIX = "logs"
_AWAY = (HubBusy, HubUnreachable, StreamLost)
_PAUSE = 0.5


class HubChanges:
    """At a hub that others share: workers of the roles that these programs serve, and all calls that the token may see."""

    def __init__(self, hub: ChosenHub, programs: Sequence[Program], console: Console) -> None:
        self._hub = hub
        self._console = console
        self._programs: Sequence[Program] = ()
        self._roles: set[object] = set()
        self._named: set[tuple[str, object]] = set()
        """Names and epochs of workers that people have been told of."""
        self._after_welcome = asyncio.Event()
        self.add(programs)

    def add(self, programs: Sequence[Program]) -> None:
        """These run from now on. What was shown of the roles of others is shown further."""
        self._programs = programs
        self._roles |= {program.role for program in programs if program.role is not None}

    def after_welcome(self, agents: Iterable[AgentInfo]) -> None:
        """People have been told that these are ready: workers are shown from now on."""
        self._named = {(agent.name, agent.raw.get("epoch")) for agent in agents}
        self._after_welcome.set()

    async def show(self) -> None:
        """Run until it is cancelled, or until the hub refuses to tell: then it says so, once."""
        async with open_hub(self._hub.address) as workers, open_hub(self._hub.caller_address) as callers:
            try:
                async with asyncio.TaskGroup() as readers:
                    readers.create_task(self._show_workers(workers.agent_changes()), name="changes of workers")
                    readers.create_task(self._show_calls(callers), name="changes of calls")
            except* RolecallError as errors:
                self._console.report(f"workers and calls are no longer shown: {errors.exceptions[0]}")

    async def _show_workers(self, feed: HubFeed) -> None:
        async for change in _changes(feed):
            await self._after_welcome.wait()
            if self._is_news(change):
                await self._console.news(PREFIX, *of_worker(change))

    def _is_news(self, change: JsonObject) -> bool:
        if any(program.is_worker(change["name"]) for program in self._programs):
            self._roles.add(change["role"])
        if change["event"] == "enrolled" and (change["name"], change["epoch"]) in self._named:
            return False
        return self._hub.own is not None or change["role"] in self._roles

    async def _show_calls(self, hub: HubClient) -> None:
        if (why := await self._why_no_calls(hub)) is not None:
            self._console.report(f"calls are not shown: {why}")
            return
        async for change in _changes(hub.task_changes()):
            if (line := of_task(change)) is not None:
                await self._console.news(PREFIX, *line)

    async def _why_no_calls(self, hub: HubClient) -> str | None:
        try:
            holder = await _holder(hub)
        except (AuthError, Forbidden) as error:
            return str(error)
        if "call" in holder["rights"]:
            return None
        hint = "; set ROLECALL_TOKEN to yours" if self._hub.own is not None else ""
        return f"a token sees its own calls, and that of {holder['name']} may make none{hint}"


async def _holder(hub: HubClient) -> JsonObject:
    while True:
        try:
            return await hub.holder()
        except _AWAY:
            await asyncio.sleep(_PAUSE)


async def _changes(feed: HubFeed) -> AsyncIterator[JsonObject]:
    """It waits for a hub that is away, also at the beginning."""
    while True:
        try:
            async for change in feed:
                yield change
        except _AWAY:
            await asyncio.sleep(_PAUSE)
