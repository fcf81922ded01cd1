"""The client for scripts and notebooks, also where an event loop runs. Written by scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rolecall.model.a2a import JsonObject
from worker_sdk.calling.blocking.loop import HubFeed, HubStream, LoopThread
from worker_sdk.calling.client import _GIVE_UP_AFTER, DEFAULT_TIMEOUT
from worker_sdk.calling.client import HubClient as AsyncHubClient
from worker_sdk.calling.messages import FileLike
from worker_sdk.calling.reply import AgentInfo, Reply
from worker_sdk.config import Token
from worker_sdk.files.hub_files import FILE_THRESHOLD
from worker_sdk.words import Budget

if TYPE_CHECKING:
    from worker_sdk.calling.messages import MessageLike
    from worker_sdk.handlers.models import ModelT

_T = TypeVar("_T")


class HubClient:
    """`with HubClient() as hub: print(hub.call("echo", "hi").text)`. As the client of `rolecall` in all else.

    It has a thread with an event loop, so it works where another loop runs, too. Leaving the block, or `close()`, ends both.
    Ctrl-C ends a wait; the task goes on.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        ca_file: str | PathLike[str] | None = None,
        file_threshold: int | None = FILE_THRESHOLD,
    ) -> None:
        self._hub = AsyncHubClient(url, token, ca_file=ca_file, file_threshold=file_threshold)
        self._thread = LoopThread()
        self._closed = False
        self.url = self._hub.url

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            try:
                self._thread.run(self._hub.__aexit__(None, None, None))
            finally:
                self._thread.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for something of the other client's, such as `file.save(folder)`."""
        return self._thread.run(work)

    def send_to_agent(
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
        return self._thread.run(
            self._hub.send_to_agent(
                role,
                message,
                instance=instance,
                context_id=context_id,
                task_id=task_id,
                timeout=timeout,
                metadata=metadata,
                budget=budget,
                blocking=blocking,
                files=files,
            )
        )

    @overload
    def call(
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
    def call(
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

    def call(
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
        result: ModelT | Reply = self._thread.run_any(
            self._hub.call(
                role,
                message,
                returns=returns,
                skill=skill,
                instance=instance,
                context_id=context_id,
                task_id=task_id,
                timeout=timeout,
                metadata=metadata,
                budget=budget,
                files=files,
            )
        )
        return result

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
        return HubStream(
            self._thread,
            self._hub.stream(
                role,
                message,
                skill=skill,
                instance=instance,
                context_id=context_id,
                task_id=task_id,
                metadata=metadata,
                budget=budget,
                files=files,
                give_up_after=give_up_after,
            ),
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
        return HubStream(
            self._thread,
            self._hub.stream_to_agent(
                role,
                message,
                instance=instance,
                context_id=context_id,
                task_id=task_id,
                metadata=metadata,
                budget=budget,
                files=files,
                give_up_after=give_up_after,
            ),
        )

    def follow_task(self, task_id: str, *, after: str | None = None, give_up_after: float = _GIVE_UP_AFTER) -> HubStream:
        """A task's stream, from after the cursor `after`. Without it the first event is the task as it is, with its text so
        far.
        """
        return HubStream(self._thread, self._hub.follow_task(task_id, after=after, give_up_after=give_up_after))

    def get_task(self, task_id: str, *, history_length: int | None = None) -> Reply:
        return self._thread.run(self._hub.get_task(task_id, history_length=history_length))

    def cancel_task(self, task_id: str) -> Reply:
        return self._thread.run(self._hub.cancel_task(task_id))

    def tasks(
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
        return self._thread.run(
            self._hub.tasks(
                role=role, state=state, context_id=context_id, since=since, limit=limit, cursor=cursor, all_holders=all_holders
            )
        )

    def summaries(
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
        return self._thread.run(
            self._hub.summaries(role=role, state=state, context_id=context_id, since=since, limit=limit, cursor=cursor)
        )

    def summary(self, task_id: str) -> JsonObject:
        """What is left of a task whose log has been deleted: role, worker, state and times. TaskNotFound."""
        return self._thread.run(self._hub.summary(task_id))

    def cancel_any_task(self, task_id: str) -> JsonObject:
        """As `cancel_task`, also for another holder in the workspace, which only operators may. The item of a list."""
        return self._thread.run(self._hub.cancel_any_task(task_id))

    def erase_task(self, task_id: str, *, all_holders: bool = False) -> None:
        """Cancel the task if it runs, and delete all that the hub has stored of it. `all_holders`: also if it is another
        holder's in the workspace, which only operators may. TaskNotFound.
        """
        return self._thread.run(self._hub.erase_task(task_id, all_holders=all_holders))

    def erase_tasks(self, *, context_id: str | None = None, holder: str | None = None, ended_by: str | None = None) -> int:
        """The same for all tasks of a conversation, or of a holder of tokens, which only operators may. `ended_by`: only those
        that had ended at that time, and what is left of older ones. How many there were.
        """
        return self._thread.run(self._hub.erase_tasks(context_id=context_id, holder=holder, ended_by=ended_by))

    def task_changes(self, *, role: str | None = None, state: str | None = None, after: str | None = None) -> HubFeed:
        """What happens to the caller's tasks, from now, or after a revision: to be iterated over, without an end. It survives
        cuts and restarts of the hub.
        """
        return HubFeed(self._thread, self._hub.task_changes(role=role, state=state, after=after))

    def agent_changes(self, *, after: str | None = None) -> HubFeed:
        """Workers that enrol, change their state and leave, as `task_changes`."""
        return HubFeed(self._thread, self._hub.agent_changes(after=after))

    def task_decision(self, task_id: str) -> JsonObject | None:
        """Why the hub chose this worker: `worker`, the `rule`, and the number of `candidates`.

        None if the hub no longer has it: it keeps the last two thousand decisions, until it restarts.
        """
        return self._thread.run(self._hub.task_decision(task_id))

    def task_tree(self, task_id: str) -> JsonObject:
        """The tree that a task belongs to: `tasks`, the root first, each with its `parent`; `usage`, their sums."""
        return self._thread.run(self._hub.task_tree(task_id))

    def discover_agents(
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
        return self._thread.run(
            self._hub.discover_agents(role=role, skill=skill, tag=tag, capability=capability, labels=labels, q=q, state=state)
        )

    def roles(self) -> dict[str, Sequence[AgentInfo]]:
        """The live roles and their workers."""
        return self._thread.run(self._hub.roles())

    def agent(self, name: str) -> AgentInfo:
        """One worker with its full card."""
        return self._thread.run(self._hub.agent(name))

    def drain_agent(self, name: str, reason: str = "") -> AgentInfo:
        """The worker finishes its running tasks and gets no new ones."""
        return self._thread.run(self._hub.drain_agent(name, reason))

    def undrain_agent(self, name: str) -> AgentInfo:
        """A worker that an operator has drained gets new tasks again."""
        return self._thread.run(self._hub.undrain_agent(name))

    def probe_agent(self, name: str) -> bool:
        """Whether the hub can connect to the worker's address now."""
        return self._thread.run(self._hub.probe_agent(name))

    def holder(self) -> JsonObject:
        """The holder of this client's token: `name`, `kind`, `workspace` and `rights`."""
        return self._thread.run(self._hub.holder())

    def asks_for_a_token(self) -> bool:
        """Whether the hub refuses requests without a token."""
        return self._thread.run(self._hub.asks_for_a_token())

    def remove_agent(self, name: str) -> None:
        """End the worker's lease. A worker that still runs enrols again at its next heartbeat."""
        return self._thread.run(self._hub.remove_agent(name))

    def health(self) -> JsonObject:
        return self._thread.run(self._hub.health())
