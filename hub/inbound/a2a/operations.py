"""A2A's operations, independent of the binding: takes a method's parameters, returns its result in the caller's dialect."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from hub.core.files.inline import InlineFiles
from hub.core.hub import Hub
from hub.core.push.configs import PushConfigs
from hub.core.tasks.reader import OnDisconnect
from hub.core.tasks.stream import TaskStream
from rolecall.errors import InvalidParams, MethodNotFound, RouteError, UnsupportedOperation
from rolecall.model.a2a import Answer, JsonObject
from rolecall.model.card import FILES_EXTENSION, SEQUENCE_EXTENSION
from rolecall.model.command import ParentCall, Send, Target
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.principal import Principal, Right
from rolecall.model.value import Value, replace
from rolecall.protocol.callers import answers
from rolecall.protocol.callers.encoder import EventEncoder, Translations
from rolecall.protocol.dialect import Requests
from rolecall.protocol.dialects import Choice
from rolecall.protocol.extensions.sequence import numbered, read_after
from rolecall.protocol.methods import Operation
from rolecall.protocol.text.timestamp import timestamp


class CallHeaders(Value, frozen=True):
    """What a request's headers add to the call."""

    after: Cursor | None = None
    key: str | None = None
    trace: str | None = None
    trace_state: str | None = None
    extensions: tuple[str, ...] = ()
    hops: int = 0
    """How many hubs the call has passed."""


class OperationCall(Value, frozen=True):
    caller: Caller
    operation: Operation
    choice: Choice
    params: JsonObject
    target: Target
    call_headers: CallHeaders
    on_disconnect: OnDisconnect | None = None
    """None where a disconnect is not reported."""
    parent: ParentCall | None = None
    """The task in which a worker makes the call."""

    @property
    def reader(self) -> Requests:
        return self.choice.dialect.requests

    @property
    def numbers(self) -> bool:
        """The caller has activated the sequence extension."""
        return SEQUENCE_EXTENSION in self.call_headers.extensions

    @property
    def by_reference(self) -> bool:
        """The caller has activated the files extension."""
        return FILES_EXTENSION in self.call_headers.extensions

    @property
    def after(self) -> Cursor | None:
        """The last event that the caller has. InvalidParams."""
        header, param = self.call_headers.after, read_after(self.params)
        if header is not None and param is not None and header != param:
            raise InvalidParams(f"Last-Event-ID names event {header}, and the parameters name event {param}.")
        return param if header is None else header


_OWN = frozenset({SEQUENCE_EXTENSION, FILES_EXTENSION})
"""The extensions that the hub has itself, and does not pass on to workers."""
_READS = frozenset(
    {Operation.GET, Operation.LIST, Operation.SUBSCRIBE, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.CARD}
)


def right_for(operation: Operation) -> Right:
    return Right.READ if operation in _READS else Right.CALL


ExtendedCard = Callable[[Caller, str | None, str], Awaitable[bytes]]
"""(caller, role, dialect) to the JSON of the role's or the hub's card. ExtendedCardNotConfigured, RoleUnknown."""


class Operations:
    def __init__(self, hub: Hub, push: PushConfigs, card: ExtendedCard) -> None:
        self._hub = hub
        self._push = push
        self._extended_card = card
        self._translations = Translations()
        self._table = {
            Operation.SEND: self._send,
            Operation.GET: self._get,
            Operation.LIST: self._list,
            Operation.CANCEL: self._cancel,
            Operation.PUSH_SET: self._push_set,
            Operation.PUSH_GET: self._push_get,
            Operation.PUSH_LIST: self._push_list,
            Operation.PUSH_DELETE: self._push_delete,
            Operation.CARD: self._card,
        }

    def caller_of(self, holder: Principal, parent: ParentCall) -> Caller:
        """LeaseUnknown, ParentOver, CallerGone."""
        return self._hub.trees.caller_of(holder, parent)

    def recall(self, holder: Principal, parent: ParentCall) -> Awaitable[None]:
        return self._hub.trees.recall(holder, parent)

    def answer(self, call: OperationCall) -> Awaitable[bytes]:
        """The result's JSON."""
        handler = self._table.get(call.operation)
        if handler is None:
            raise MethodNotFound(call.operation.value)
        return handler(call)

    async def open(self, call: OperationCall, admitted: Callable[[TaskId], None] | None = None) -> TaskStream:
        """The stream of a message or of a task. `admitted` is called once a message is stored."""
        if call.operation is Operation.STREAM:
            return await self._hub.stream(call.caller, _read_send(call), call.on_disconnect, admitted)
        command = call.reader.read_subscribe(call.params, call.target, call.after, call.choice.dialects)
        await self._check(call, command.task_id)
        return await self._hub.subscribe(call.caller, command)

    def encoder(self, task_stream: TaskStream, call: OperationCall) -> EventEncoder:
        return EventEncoder(task_stream.dialect, task_stream.alias, self._translations, numbers=call.numbers)

    def inline_for(self, call: OperationCall) -> InlineFiles | None:
        """None: the caller gets the urls of files."""
        return None if call.by_reference else self._hub.inline

    async def _check(self, call: OperationCall, task: TaskId) -> None:
        """TaskNotFound: a worker has to do with the tasks that its own task has started."""
        if call.parent is not None:
            await self._hub.trees.check_child(call.parent, task)

    async def _send(self, call: OperationCall) -> bytes:
        send = _read_send(call)
        try:
            answer = await self._hub.send(call.caller, send, call.on_disconnect)
        except RouteError as error:
            refusal = call.choice.dialect.answers.refusal(send, error, timestamp(time.time()))
            if refusal is None:
                raise
            return refusal
        return answers.wrapped(answer.kind, await self._body(call, answer), answer.dialect)

    async def _get(self, call: OperationCall) -> bytes:
        command = call.reader.read_get(call.params, call.target, call.choice.dialects)
        at = call.after if call.numbers else read_after(call.params)
        if at is not None:
            command = replace(command, at=at)
        await self._check(call, command.task_id)
        return await self._body(call, await self._hub.get(call.caller, command, call.on_disconnect))

    async def _list(self, call: OperationCall) -> bytes:
        command = call.reader.read_list(call.params, call.target)
        found = await self._hub.list(call.caller, command, call.on_disconnect)
        tasks, size = list[bytes](), 0
        for answer in found.tasks:
            tasks.append(await self._body(call, answer, beside=size))
            size += len(tasks[-1])
        return answers.task_page(tasks, token=found.next_page, size=command.query.limit, total=found.total)

    async def _cancel(self, call: OperationCall) -> bytes:
        command = call.reader.read_cancel(call.params, call.target, call.choice.dialects)
        await self._check(call, command.task_id)
        return await self._body(call, await self._hub.cancel(call.caller, command))

    async def _body(self, call: OperationCall, answer: Answer, *, beside: int = 0) -> bytes:
        """`beside`: bytes of the other tasks of a list. AnswerNotSent."""
        body, inline = answer.body, self._hub.inline
        if not call.by_reference and inline.may_be_in(body):
            body = await inline.document(call.caller.workspace, answer.task, body, answer.dialect, beside=beside)
        return numbered(body, answer.at) if call.numbers else body

    async def _push_set(self, call: OperationCall) -> bytes:
        command = call.reader.read_set_push(call.params, call.target)
        row = await self._hub.task(call.caller, command.config.task, command.target)
        config = command.config.of(row.id, numbers=call.numbers, by_reference=call.by_reference)
        stored = await self._push.set(call.caller, config)
        return answers.push_config(stored, call.choice.dialect, row.alias)

    async def _push_get(self, call: OperationCall) -> bytes:
        command = call.reader.read_name_push(call.params, call.target)
        row = await self._hub.task(call.caller, command.task_id, command.target)
        return answers.push_config(await self._push.get(call.caller, row.id, command.id), call.choice.dialect, row.alias)

    async def _push_list(self, call: OperationCall) -> bytes:
        command = call.reader.read_name_push(call.params, call.target, required=False)
        row = await self._hub.task(call.caller, command.task_id, command.target)
        return answers.push_configs(await self._push.list(call.caller, row.id), call.choice.dialect)

    async def _push_delete(self, call: OperationCall) -> bytes:
        command = call.reader.read_name_push(call.params, call.target)
        row = await self._hub.task(call.caller, command.task_id, command.target)
        await self._push.delete(call.caller, row.id, command.id or row.id)
        return b"null"

    async def _card(self, call: OperationCall) -> bytes:
        name, instance = call.reader.read_card(call.params, call.target), call.target.path_instance
        if name is not None and instance is not None:
            name = f"{name}:{instance}"
        return await self._extended_card(call.caller, name, call.choice.dialect.version)


def _read_send(call: OperationCall) -> Send:
    read = call.reader.read_send
    call_headers = call.call_headers
    extensions = call_headers.extensions
    if not _OWN.isdisjoint(extensions):  # a worker's numbers and files would be others
        extensions = tuple([uri for uri in extensions if uri not in _OWN])
    send = read(call.params, call.target, trace=call_headers.trace, key=call_headers.key, extensions=extensions)
    if send.push is not None and (call.numbers or call.by_reference):
        send = replace(send, push=send.push.of(send.push.task, numbers=call.numbers, by_reference=call.by_reference))
    if call_headers.trace_state is not None:
        send = replace(send, trace_state=call_headers.trace_state)
    if call.parent is not None:
        if send.alias:
            raise UnsupportedOperation("In a task, call in version 0.3 or later: in 0.1 callers name tasks themselves.")
        send = replace(send, parent=call.parent)
    return replace(send, hops=call_headers.hops) if call_headers.hops else send
