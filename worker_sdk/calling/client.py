"""The client that calls roles through a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

from rolecall.model.a2a import JsonObject
from worker_sdk.calling.feed import HubFeed
from worker_sdk.calling.http import HubLink
from worker_sdk.calling.messages import FileLike, attach, call_metadata, role_request
from worker_sdk.calling.reply import AgentInfo, Reply, agent_of, read_reply
from worker_sdk.calling.stream import HubStream
from worker_sdk.config import Token, hub_address
from worker_sdk.errors import AuthError, HubUnreachable, RolecallError, TaskNotFound, TimedOut
from worker_sdk.files.hub_files import FILE_THRESHOLD, HubFiles
from worker_sdk.words import Budget

if TYPE_CHECKING:
    from worker_sdk.calling.messages import MessageLike
    from worker_sdk.handlers.models import ModelT

DEFAULT_TIMEOUT = 300.0
"""Seconds that a call waits for the end of a task by default."""
_GIVE_UP_AFTER = 60.0
"""Seconds that a stream waits for a hub to come back."""


class HubClient:
    """`async with HubClient() as hub:`. Address and token: argument, else ROLECALL_HUB and ROLECALL_TOKEN, else the default.
    `ca_file` (ROLECALL_CA_FILE): authorities to trust for an https address, beside the system's; a PEM file.
    `file_threshold`: larger files are uploaded, streamed, and sent by reference; None: all are sent in the message.

    Every method can raise HubUnreachable, AuthError, Forbidden and the error for the hub's reason (worker_sdk.errors).
    No request is sent twice: an error after the request was sent says that the call may have run.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        ca_file: str | PathLike[str] | None = None,
        file_threshold: int | None = FILE_THRESHOLD,
    ) -> None:
        self.url, token, self._ca_file = hub_address(url, token, ca_file)
        self._link = HubLink(self.url, token, ca_file=self._ca_file)
        self._files = HubFiles(self._link, threshold=file_threshold)

    async def __aenter__(self) -> HubClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._link.close()

    # --- calling a role

    async def send_to_agent(
        self,
        role: str,
        message: MessageLike,
        *,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        blocking: bool = True,
        files: Sequence[FileLike] = (),
    ) -> Reply:
        """Send, and wait until the task has ended or asks for input. `role` may be `role:instance`. `message`: a text, a dict
        or a model of pydantic (data), a File, a list of these, or a Message. A dict that is an A2A message is one.
        `files`: Files, or paths, that are sent with it; their upload does not count for the timeout.

        `budget`: what the task may use of language models with all that it starts. It waits on a stream, so that it survives a
        restart of the hub and an error names the task. After TimedOut the task keeps running. A failed task is returned as a
        Reply; `raise_for_state()` raises an error for it.
        """
        path, params = role_request(role, instance, message, task_id, context_id, call_metadata(metadata, budget=budget), files)
        await attach(params["message"], self._files)
        stream = HubStream(self._link, path, "message/stream", params, give_up_after=_GIVE_UP_AFTER, files=self._files)
        try:
            async with asyncio.timeout(timeout):
                if blocking:
                    async with stream:
                        return await stream.reply()
                with _about(task_id):
                    params["configuration"] = {"blocking": False}
                    answer = await self._link.call(path, "message/send", params, timeout=None)
        except TimeoutError:
            goes_on = f" Its task {stream.task_id} goes on." if stream.task_id else ""
            facts = {"taskId": stream.task_id or ""}
            raise TimedOut(f"{role} has not ended within {timeout:g} s.{goes_on}", facts=facts) from None
        return await read_reply(answer, self._files)

    @overload
    async def call(
        self,
        role: str,
        message: MessageLike,
        *,
        returns: type[ModelT],
        skill: str | None = None,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
    ) -> ModelT: ...

    @overload
    async def call(
        self,
        role: str,
        message: MessageLike,
        *,
        returns: None = None,
        skill: str | None = None,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
    ) -> Reply: ...

    async def call(
        self,
        role: str,
        message: MessageLike,
        *,
        returns: type[ModelT] | None = None,
        skill: str | None = None,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
    ) -> ModelT | Reply:
        """Send, wait, and return the result, as the model `returns` if it is given; `skill` chooses among a worker's handlers.

        It is `send_to_agent` for a result: raises as that and `raise_for_state()` do; InvalidResult if the result is not that
        model.
        """
        reply = await self.send_to_agent(
            role,
            message,
            instance=instance,
            context_id=context_id,
            task_id=task_id,
            timeout=timeout,
            metadata=call_metadata(metadata, skill),
            budget=budget,
            files=files,
        )
        reply.raise_for_state()
        return reply if returns is None else reply.as_model(returns)

    def stream(
        self,
        role: str,
        message: MessageLike,
        *,
        skill: str | None = None,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
        give_up_after: float = _GIVE_UP_AFTER,
    ) -> HubStream:
        """As `call`, with each event as it comes: `async with hub.stream(role, Order(…)) as stream: async for event in stream:`

        `event.progress` and `event.as_model(Invoice)` read what typed handlers send. A stream that is cut resumes by itself.
        """
        return self.stream_to_agent(
            role,
            message,
            instance=instance,
            context_id=context_id,
            task_id=task_id,
            metadata=call_metadata(metadata, skill),
            budget=budget,
            files=files,
            give_up_after=give_up_after,
        )

    def stream_to_agent(
        self,
        role: str,
        message: MessageLike,
        *,
        instance: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
        give_up_after: float = _GIVE_UP_AFTER,
    ) -> HubStream:
        """`async with hub.stream_to_agent(role, text) as stream: async for event in stream: …`

        A stream that is cut resumes by itself where it was. If the hub does not come back within `give_up_after` seconds:
        StreamLost.
        """
        path, params = role_request(role, instance, message, task_id, context_id, call_metadata(metadata, budget=budget), files)
        return HubStream(self._link, path, "message/stream", params, files=self._files, give_up_after=give_up_after)

    def follow_task(self, task_id: str, *, after: str | None = None, give_up_after: float = _GIVE_UP_AFTER) -> HubStream:
        """A task's stream, from after the cursor `after`. Without it the first event is the task as it is, with its text so
        far.
        """
        params = {"id": task_id}
        return HubStream(
            self._link, "/", "tasks/resubscribe", params, give_up_after=give_up_after, after=after, files=self._files
        )

    # --- tasks

    async def get_task(self, task_id: str, *, history_length: int | None = None) -> Reply:
        params: JsonObject = {"id": task_id}
        if history_length is not None:
            params["historyLength"] = history_length
        with _about(task_id):
            return await read_reply(await self._link.call("/", "tasks/get", params, timeout=30.0), self._files)

    async def cancel_task(self, task_id: str) -> Reply:
        with _about(task_id):
            return await read_reply(await self._link.call("/", "tasks/cancel", {"id": task_id}, timeout=30.0), self._files)

    async def tasks(
        self,
        *,
        role: str | None = None,
        state: str | None = None,
        context_id: str | None = None,
        since: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        all_holders: bool = False,
    ) -> JsonObject:
        """One page: `tasks`, `total` and `next_cursor`, which is the `cursor` of the next page. `state`: one, or several with
        commas between them. `since`: a time as `updated` has it; tasks that changed then or later. `all_holders`: those of the
        whole workspace, which only operators may list.
        """
        query = {"role": role, "state": state, "context_id": context_id, "since": since, "limit": limit, "cursor": cursor}
        query |= {"all_holders": "true" if all_holders else None}
        page: JsonObject = await self._link.ask("GET", "/registry/tasks", query=_without_none(query))
        return page

    async def summaries(
        self,
        *,
        role: str | None = None,
        state: str | None = None,
        context_id: str | None = None,
        since: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JsonObject:
        """One page, as `tasks`, of the tasks whose logs have been deleted: `summaries` and `next_cursor`."""
        query = {"role": role, "state": state, "context_id": context_id, "since": since, "limit": limit, "cursor": cursor}
        page: JsonObject = await self._link.ask("GET", "/registry/summaries", query=_without_none(query))
        return page

    async def summary(self, task_id: str) -> JsonObject:
        """What is left of a task whose log has been deleted: role, worker, state and times. TaskNotFound."""
        found: JsonObject = await self._link.ask("GET", f"/registry/summaries/{quote(task_id, safe='')}")
        return found

    async def cancel_any_task(self, task_id: str) -> JsonObject:
        """As `cancel_task`, also for another holder in the workspace, which only operators may. The item of a list."""
        item: JsonObject = await self._link.ask("POST", f"/registry/tasks/{quote(task_id, safe='')}/cancel", body={})
        return item

    async def erase_task(self, task_id: str, *, all_holders: bool = False) -> None:
        """Cancel the task if it runs, and delete all that the hub has stored of it. `all_holders`: also if it is another
        holder's in the workspace, which only operators may. TaskNotFound.
        """
        query = {"all_holders": "true"} if all_holders else {}
        await self._link.ask("DELETE", f"/registry/tasks/{quote(task_id, safe='')}", query=query)

    async def erase_tasks(
        self, *, context_id: str | None = None, holder: str | None = None, ended_by: str | None = None
    ) -> int:
        """The same for all tasks of a conversation, or of a holder of tokens, which only operators may. `ended_by`: only those
        that had ended at that time, and what is left of older ones. How many there were.
        """
        query, count, more = _without_none({"context_id": context_id, "holder": holder, "ended_by": ended_by}), 0, True
        while more:
            erased = await self._link.ask("DELETE", "/registry/tasks", query=query)
            count, more = count + erased["erased"], erased["more"]
        return count

    def task_changes(self, *, role: str | None = None, state: str | None = None, after: str | None = None) -> HubFeed:
        """What happens to the caller's tasks, from now, or after a revision: to be iterated over, without an end. It survives
        cuts and restarts of the hub.
        """
        return HubFeed(self._link, "/registry/tasks/events", _without_none({"role": role, "state": state}), after)

    def agent_changes(self, *, after: str | None = None) -> HubFeed:
        """Workers that enrol, change their state and leave, as `task_changes`."""
        return HubFeed(self._link, "/registry/events", {}, after)

    async def task_decision(self, task_id: str) -> JsonObject | None:
        """Why the hub chose this worker: `worker`, the `rule`, and the number of `candidates`.

        None if the hub no longer has it: it keeps the last two thousand decisions, until it restarts.
        """
        try:
            with _about(task_id):
                decision: JsonObject = await self._link.ask("GET", f"/registry/tasks/{quote(task_id, safe='')}/decision")
        except TaskNotFound:
            return None
        return decision

    async def task_tree(self, task_id: str) -> JsonObject:
        """The tree that a task belongs to: `tasks`, the root first, each with its `parent`; `usage`, their sums."""
        with _about(task_id):
            tree: JsonObject = await self._link.ask("GET", f"/registry/tasks/{quote(task_id, safe='')}/tree")
        return tree

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
        """All live workers that match every filter. A label with the value None matches any value."""
        query: dict[str, Any] = _without_none(
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
        """The live roles and their workers."""
        roles: dict[str, list[AgentInfo]] = {}
        for agent in await self.discover_agents():
            roles.setdefault(agent.role, []).append(agent)
        return dict(sorted(roles.items()))

    async def agent(self, name: str) -> AgentInfo:
        """One worker with its full card."""
        return agent_of(await self._link.ask("GET", _agent_path(name)))

    async def drain_agent(self, name: str, reason: str = "") -> AgentInfo:
        """The worker finishes its running tasks and gets no new ones."""
        return agent_of(await self._link.ask("POST", _agent_path(name) + "/drain", body={"reason": reason} if reason else {}))

    async def undrain_agent(self, name: str) -> AgentInfo:
        """A worker that an operator has drained gets new tasks again."""
        return agent_of(await self._link.ask("POST", _agent_path(name) + "/undrain", body={}))

    async def probe_agent(self, name: str) -> bool:
        """Whether the hub can connect to the worker's address now."""
        probed = await self._link.ask("POST", _agent_path(name) + "/probe", body={})
        return bool(probed["reachable"])

    async def holder(self) -> JsonObject:
        """The holder of this client's token: `name`, `kind`, `workspace` and `rights`."""
        holder: JsonObject = await self._link.ask("GET", "/registry/me")
        return holder

    async def asks_for_a_token(self) -> bool:
        """Whether the hub refuses requests without a token."""
        link = HubLink(self.url, ca_file=self._ca_file)
        try:
            await link.ask("GET", "/registry/agents", query={"limit": 1})
        except AuthError:
            return True
        finally:
            await link.close()
        return False

    async def remove_agent(self, name: str) -> None:
        """End the worker's lease. A worker that still runs enrols again at its next heartbeat."""
        await self._link.ask("DELETE", _agent_path(name), body={})

    async def health(self) -> JsonObject:
        health = await self._link.ask("GET", "/health")
        if not isinstance(health, dict):
            raise HubUnreachable(f"The server at {self.url} is no hub. Check the address.")
        return health


@contextmanager
def _about(task_id: str | None) -> Iterator[None]:
    """Errors within it name the task."""
    try:
        yield
    except RolecallError as error:
        error.about(task_id)
        raise


def _agent_path(name: str) -> str:
    return f"/registry/agents/{quote(name, safe=':')}"


def _without_none(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
