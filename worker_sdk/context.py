"""What a handler can read about its task, and the calls that it makes in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload
from uuid import uuid4

from rolecall.model.a2a import JsonObject
from rolecall.model.command import Send
from rolecall.model.usage import Usage, nanos_of, read_currency, read_model, read_tokens
from worker_sdk.errors import RolecallError
from worker_sdk.files.file import File
from worker_sdk.files.parts import NO_FILES, Files, files_in
from worker_sdk.words import Budget, Message

if TYPE_CHECKING:
    from rolecall.model.usage import Amount
    from worker_sdk.calling.child import Ask
    from worker_sdk.calling.http import HubLink
    from worker_sdk.calling.messages import FileLike, MessageLike
    from worker_sdk.calling.reply import Reply
    from worker_sdk.calling.stream import HubStream
    from worker_sdk.handlers.models import ModelT

Questions: TypeAlias = Literal["ask", "raise"]
"""What a child asks: of the caller, or as an error."""


class LinkWithin(Protocol):
    """See Lease.link_within."""

    def __call__(self, task: str, *words: str, headers: Mapping[str, str]) -> HubLink: ...


FilesWithin: TypeAlias = Callable[[str], "Files | None"]
"""The files for a task of the hub; None: its files are in its messages."""


class HubAccess:
    """How a task reaches others: the hub's id for it, the way to the hub and to its files, to its own caller, and for its
    reports of usage.
    """

    __slots__ = ("_files", "_files_within", "ask", "hub_task", "link", "report")

    def __init__(
        self,
        hub_task: str = "",
        link: LinkWithin | None = None,
        ask: Ask | None = None,
        report: Callable[[Usage], None] = lambda usage: None,
        files: FilesWithin | None = None,
    ) -> None:
        self.hub_task = hub_task
        self.link = link
        self.ask = ask
        self.report = report
        self._files_within = files
        self._files: Files | None = None

    @property
    def files(self) -> Files | None:
        if self._files is None and self._files_within is not None:
            self._files = self._files_within(self.hub_task)
        return self._files

    def find(self, message: JsonObject) -> Mapping[str, File]:
        """The files that a message names by reference, by their urls."""
        parts = [part for part in message.get("parts") or () if "uri" in (part.get("file") or ())]
        return files_in(parts, self.files) if parts else NO_FILES


class Task:
    """The current task. After `yield NeedInput(…)` returns, `message`, `metadata`, `trace` and `remaining` are those of the
    newest turn.
    """

    __slots__ = ("_access", "_done_by", "_received", "_send", "context_id", "id")

    def __init__(
        self, task_id: str, context_id: str, send: Send, access: HubAccess | None = None, remaining: float | None = None
    ) -> None:
        self.id = task_id
        self.context_id = context_id
        self._access = access or HubAccess()
        self.turn(send, remaining)

    @property
    def message(self) -> Message:
        return self._received

    @property
    def metadata(self) -> JsonObject:
        """The metadata of the request, not of the message."""
        return self._send.params.get("metadata") or {}

    @property
    def trace(self) -> str | None:
        """The request's `traceparent`. Calls in the task carry it."""
        return self._send.trace

    @property
    def trace_state(self) -> str | None:
        """The `tracestate` that goes with it."""
        return self._send.trace_state

    @property
    def remaining(self) -> float | None:
        """Seconds until the hub ends the task. None: it has no deadline. What the task calls has no later one."""
        return None if self._done_by is None else max(0.0, self._done_by - time.monotonic())

    def usage(
        self,
        *,
        model: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: Amount | None = None,
        currency: str = "USD",
    ) -> None:
        """Report what the task has used of a model since the last report: reports add up. May be called from any thread.
        ValueError.
        """
        if not input_tokens and not output_tokens and cost is None:
            raise ValueError("task.usage takes tokens or a cost")
        nanos, currency = (0, "") if cost is None else (nanos_of(cost), read_currency(currency))
        self._access.report(Usage(read_model(model), read_tokens(input_tokens), read_tokens(output_tokens), nanos, currency))

    # --- calls in the task

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
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        goes_on: bool = False,
        again: bool = False,
        questions: Questions = "ask",
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
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        goes_on: bool = False,
        again: bool = False,
        questions: Questions = "ask",
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
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        goes_on: bool = False,
        again: bool = False,
        questions: Questions = "ask",
        files: Sequence[FileLike] = (),
    ) -> ModelT | Reply:
        """Call another role in the name of this task's caller, and wait for the end. Returns the reply, or its data as the
        model `returns`. TaskFailed, TaskRejected, InvalidResult, BudgetSpent.

        The new task is a child of this one: it ends with it, unless it `goes_on`. `within`: seconds that it may take. `again`:
        call a role that already works further up. `budget`: what the child may use with all that it starts; it spends from the
        budgets above it too. `files`: Files, or paths, that are sent with the message; those that came
        from the hub are passed on as they are. What the child asks is asked of this task's caller, and the answer goes to
        the child; with `questions="raise"` it raises InputRequired. If a worker that is `idempotent` is lost, the call is made
        once more.
        """
        from worker_sdk.calling.messages import call_metadata, message_document

        ask = self._access.ask if questions == "ask" else None
        how: dict[str, Any] = {
            "instance": instance,
            "context_id": context_id,
            "metadata": call_metadata(metadata, skill, budget),
        }
        how |= {"goes_on": goes_on, "again": again, "files": files}
        began = time.monotonic()
        try:
            reply = await self._reply(role, message, ask, within=within, **how)
        except RolecallError as error:
            left = None if within is None else within - (time.monotonic() - began)
            if error.facts.get("idempotent") != "true" or (left is not None and left <= 0):
                raise
            # A call of its own: with the same id it would be the one that has failed.
            repeated = Message({**message_document(message), "messageId": str(uuid4())})
            reply = await self._reply(role, repeated, ask, within=left, **how)
        return reply if returns is None else reply.as_model(returns)

    async def _reply(self, role: str, message: MessageLike, ask: Ask | None, *, goes_on: bool, **how: Any) -> Reply:
        """TaskFailed, TaskRejected, InputRequired."""
        from worker_sdk.calling.child import ChildCall

        def answer(child: str, message: Message) -> HubStream:
            return self.stream(role, message, task_id=child, fetch_files=False)

        stream = self.stream(role, message, goes_on=goes_on, fetch_files=False, **how)
        child = ChildCall(self._link, stream, answer, goes_on=goes_on, files=self._access.files)
        try:
            return (await child.reply(ask)).raise_for_state()
        except RolecallError as error:
            error.called = role
            raise

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
        within: float | None = None,
        goes_on: bool = False,
        again: bool = False,
        files: Sequence[FileLike] = (),
        fetch_files: bool = True,
    ) -> HubStream:
        """`async with task.stream(role, text) as stream: async for event in stream: …`; otherwise as `call`. `task_id`: of a
        child that has asked something. `fetch_files`: small files are in memory before their event is given.
        """
        from worker_sdk.calling.child import GIVE_UP_AFTER
        from worker_sdk.calling.messages import call_metadata, role_request
        from worker_sdk.calling.stream import HubStream

        words = [f"within={within:.3f}"] if within is not None else []
        words += ["goes-on"] if goes_on else []
        words += ["again"] if again else []
        path, params = role_request(
            role, instance, message, task_id, context_id, call_metadata(metadata, skill=skill, budget=budget), files
        )
        return HubStream(
            self._link(*words),
            path,
            "message/stream",
            params,
            give_up_after=GIVE_UP_AFTER,
            repeats=True,
            files=self._access.files,
            fetch_files=fetch_files,
            called=role,
        )

    def _link(self, *words: str) -> HubLink:
        """RolecallError: there is no hub that the call could be made through."""
        access = self._access
        if access.link is None or not access.hub_task:
            raise RolecallError("This task did not come through a hub, so it can call no other role.")
        trace = {"traceparent": self.trace, "tracestate": self.trace_state}
        return access.link(access.hub_task, *words, headers={name: value for name, value in trace.items() if value})

    def turn(self, send: Send, remaining: float | None = None) -> None:
        message = send.params["message"]
        self._send, self._received = send, Message(message, self._access.find(message))
        self._done_by = None if remaining is None else time.monotonic() + remaining

    def __repr__(self) -> str:
        return f"Task({self.id!r})"
