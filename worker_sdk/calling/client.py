"""Calling roles through a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from rolecall.model.a2a import JsonObject
from rolecall.model.ids import split_name
from worker_sdk.calling.http import HubLink
from worker_sdk.calling.reply import AgentInfo, Reply, agent_of, reply_of
from worker_sdk.calling.stream import HubStream
from worker_sdk.config import hub_address
from worker_sdk.errors import AuthError, HubUnreachable, TaskNotFound, TimedOut
from worker_sdk.words import Message

PATIENCE = 300.0
"""How long a call waits for a task's end where no `timeout` is given."""

Words = str | Message | Mapping[str, Any]


class HubClient:
    """`async with HubClient() as hub:`. Address and token: argument, else ROLECALL_HUB and ROLECALL_TOKEN, else the default.

    Every method raises HubUnreachable or AuthError, and the error that fits what the hub said (worker_sdk.errors).
    Nothing is sent twice: an error after the call has left says that it may have run.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url, token = hub_address(url, token)
        self._link = HubLink(self.url, token)

    async def __aenter__(self) -> HubClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._link.close()

    # --- calling a role

    async def send_to_agent(
        self,
        role: str,
        message: Words,
        *,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        timeout: float | None = PATIENCE,
        metadata: Mapping[str, Any] | None = None,
        blocking: bool = True,
    ) -> Reply:
        """Send, and wait until the task has ended or asks for input. `role` may be `role:instance`.

        TimedOut leaves the task running. A failed task is a Reply: `raise_for_state()` makes an error of it.
        """
        path, params = _addressed(role, instance, message, task_id, context_id, metadata)
        params["configuration"] = {"blocking": blocking}
        try:
            async with asyncio.timeout(timeout):
                return reply_of(await self._link.call(path, "message/send", params, timeout=None))
        except TimeoutError as error:
            raise TimedOut(f"{role} has not ended within {timeout:g} s.") from error

    def stream_to_agent(
        self,
        role: str,
        message: Words,
        *,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        give_up_after: float = 60.0,
    ) -> HubStream:
        """`async with hub.stream_to_agent(role, text) as stream: async for event in stream: …`

        A stream that is cut goes on by itself where it was, for as long as the hub comes back within `give_up_after`
        seconds; then StreamLost.
        """
        path, params = _addressed(role, instance, message, task_id, context_id, metadata)
        return HubStream(self._link, path, "message/stream", params, give_up_after=give_up_after)

    def follow_task(self, task_id: str, *, after: str | None = None, give_up_after: float = 60.0) -> HubStream:
        """A task's stream, from the cursor `after` or from now."""
        return HubStream(self._link, "/", "tasks/resubscribe", {"id": task_id}, give_up_after=give_up_after, after=after)

    # --- tasks

    async def get_task(self, task_id: str, *, history_length: int | None = None) -> Reply:
        params: JsonObject = {"id": task_id}
        if history_length is not None:
            params["historyLength"] = history_length
        return reply_of(await self._link.call("/", "tasks/get", params, timeout=30.0))

    async def cancel_task(self, task_id: str) -> Reply:
        return reply_of(await self._link.call("/", "tasks/cancel", {"id": task_id}, timeout=30.0))

    async def tasks(
        self,
        *,
        role: str | None = None,
        state: str | None = None,
        context_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JsonObject:
        """One page: `tasks`, `total` and the `next_cursor` to give back."""
        query = {"role": role, "state": state, "context_id": context_id, "limit": limit, "cursor": cursor}
        page: JsonObject = await self._link.ask("GET", "/registry/tasks", query=_given(query))
        return page

    async def task_decision(self, task_id: str) -> JsonObject | None:
        """Why this worker: `worker`, the `rule` that chose it, and among how many `candidates`.

        None once the hub has forgotten it: it remembers the last two thousand, until it restarts.
        """
        try:
            made: JsonObject = await self._link.ask("GET", f"/registry/tasks/{quote(task_id, safe='')}/decision")
        except TaskNotFound:
            return None
        return made

    # --- agents

    async def discover_agents(
        self,
        *,
        role: str | None = None,
        skill: str | None = None,
        tag: str | None = None,
        capability: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        q: str | None = None,
        state: str | None = None,
    ) -> list[AgentInfo]:
        """Every live worker that fits all filters. A label whose value is None may have any."""
        query: dict[str, Any] = _given(
            {"role": role, "skill": skill, "tag": tag, "capability": capability, "q": q, "state": state}
        )
        if labels:
            query["label"] = [name if value is None else f"{name}={value}" for name, value in labels.items()]
        found: list[AgentInfo] = []
        while True:
            page = await self._link.ask("GET", "/registry/agents", query=query)
            found += [agent_of(item) for item in page["agents"]]
            if not page.get("next_cursor"):
                return found
            query["cursor"] = page["next_cursor"]

    async def roles(self) -> dict[str, Sequence[AgentInfo]]:
        """The live roles, each with its workers."""
        roles: dict[str, list[AgentInfo]] = {}
        for agent in await self.discover_agents():
            roles.setdefault(agent.role, []).append(agent)
        return dict(sorted(roles.items()))

    async def agent(self, name: str) -> AgentInfo:
        """One worker with its full card."""
        return agent_of(await self._link.ask("GET", _agent(name)))

    async def drain_agent(self, name: str, reason: str = "") -> AgentInfo:
        """The worker finishes what it has and gets nothing new."""
        return agent_of(await self._link.ask("POST", _agent(name) + "/drain", body={"reason": reason} if reason else {}))

    async def probe_agent(self, name: str) -> bool:
        """Whether the hub itself can connect to the worker's address now."""
        probed = await self._link.ask("POST", _agent(name) + "/probe", body={})
        return bool(probed["reachable"])

    async def asks_for_a_token(self) -> bool:
        """Whether the hub turns away those who show none."""
        link = HubLink(self.url)
        try:
            await link.ask("GET", "/registry/agents", query={"limit": 1})
        except AuthError:
            return True
        finally:
            await link.close()
        return False

    async def remove_agent(self, name: str) -> None:
        """End its lease. A worker that lives enrols again with its next beat."""
        await self._link.ask("DELETE", _agent(name), body={})

    async def health(self) -> JsonObject:
        health = await self._link.ask("GET", "/health")
        if not isinstance(health, dict):
            raise HubUnreachable(f"What answers at {self.url} is no hub.")
        return health


def message_document(words: Words, *, task_id: str | None = None, context_id: str | None = None) -> JsonObject:
    """An A2A message with an id of its own, unless it came with one."""
    if isinstance(words, str):
        document: JsonObject = {"parts": [{"kind": "text", "text": words}]}
    else:
        document = dict(words.raw if isinstance(words, Message) else words)
    document = {"kind": "message", "role": "user", "messageId": str(uuid4()), **document}
    if task_id is not None:
        document["taskId"] = task_id
    if context_id is not None:
        document["contextId"] = context_id
    return document


def _addressed(
    name: str,
    instance: str | None,
    words: Words,
    task_id: str | None,
    context_id: str | None,
    metadata: Mapping[str, Any] | None,
) -> tuple[str, JsonObject]:
    role, named = split_name(name)
    pinned = instance or named
    params: JsonObject = {"message": message_document(words, task_id=task_id, context_id=context_id)}
    said = dict(metadata or {}) | ({"role": f"{role}:{pinned}"} if pinned else {})
    if said:
        params["metadata"] = said
    return f"/agents/{quote(role, safe='')}/", params


def _agent(name: str) -> str:
    return f"/registry/agents/{quote(name, safe=':')}"


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
