"""Handlers with models of pydantic: what they take and give, what is refused before they run, and several on one worker."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import date
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.card import PROGRESS_EXTENSION
from rolecall.protocol.cards import skills
from rolecall.protocol.faults import fault_of
from tests.unit.worker_sdk.typed import GOOD, Invoice, Item, Order, data_message, of_text, total, worker_of
from worker_sdk import Artifact, File, InvalidResult, Message, Progress, Status, Task, TaskFailed
from worker_sdk.calling.reply import event_of
from worker_sdk.handlers.models import MAX_MODEL_VALUES

Stream = AsyncGenerator[Any, Message]


# --- every form of a handler


def plain(order: Order) -> Invoice:
    return total(order)


async def coroutine(order: Order) -> Invoice:
    return total(order)


async def generator(order: Order) -> AsyncGenerator[Invoice, Message]:
    yield total(order)


class OfMethods:
    def plain(self, order: Order) -> Invoice:
        return total(order)

    async def coroutine(self, order: Order) -> Invoice:
        return total(order)

    async def generator(self, order: Order) -> AsyncGenerator[Invoice, Message]:
        yield total(order)

    async def __call__(self, order: Order) -> Invoice:
        return total(order)


async def with_more(count: int, order: Order) -> Invoice:
    return total(order)


FORMS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "coroutine": coroutine,
    "generator": generator,
    "method": OfMethods().plain,
    "coroutine method": OfMethods().coroutine,
    "generator method": OfMethods().generator,
    "object": OfMethods(),
    "partial": partial(with_more, 2),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_data_part_reaches_every_form_of_handler_as_its_model_and_the_result_is_a_data_part(form: str) -> None:
    async with worker_of(FORMS[form]).test() as t:
        reply = await t.send(data_message(GOOD))
        assert reply.raise_for_state().data == {"total": 5.0}
        assert await t.call(Order.model_validate(GOOD), returns=Invoice) == Invoice(total=5)


LINE = GOOD["lines"][0]
MISMATCHES: dict[str, tuple[Any, str]] = {
    "missing": ({"customer": "anna"}, '"lines" is missing'),
    "type": ({**GOOD, "lines": [LINE, {**LINE, "price": "x"}]}, '"lines[1].price" must be a number'),
    "bound": ({**GOOD, "lines": [{**LINE, "count": 0}]}, '"lines[0].count" must be greater than 0'),
    "unknown": ({**GOOD, "colour": "red"}, '"colour" is not known'),
    "choice": ({**GOOD, "speed": "medium"}, "\"speed\" must be 'slow' or 'fast'"),
    "length": ({**GOOD, "customer": "a"}, '"customer" must have at least 2 characters'),
    "own rule": ({**GOOD, "customer": "stranger"}, '"customer" is no customer of ours'),
    "fraction": ({**GOOD, "lines": [{**LINE, "count": 1.5}]}, '"lines[0].count" must be a whole number'),
    "no object": ({**GOOD, "lines": [3]}, '"lines[0]" must be an object'),
    "no list": ({**GOOD, "lines": "x"}, '"lines" must be a list'),
    "several": ({"customer": 1}, '"customer" must be a text; "lines" is missing'),
    "of the whole": ({**GOOD, "customer": "snail", "speed": "fast"}, "it cannot be fast"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MISMATCHES)
async def test_data_that_does_not_match_is_refused_with_its_path_and_there_is_no_task(form: str, kind: str) -> None:
    data, problem = MISMATCHES[kind]
    async with worker_of(FORMS[form]).test() as t:
        with pytest.raises(InvalidParams) as refused:
            await t.send(data_message(data, text="see"))
        assert str(refused.value) == f"message.parts[1].data does not match Order: {problem}."
        assert fault_of(refused.value).code == -32602
        assert (t.tasks.slots.busy, await t.tasks.finish(0, "over")) == (0, 0)


async def test_many_problems_are_counted_and_the_text_stays_short_enough_for_a_hub() -> None:
    async with worker_of(coroutine).test() as t:
        with pytest.raises(InvalidParams, match=r'"lines\[4\]" must be an object; and 95 more\.$'):
            await t.send(data_message({**GOOD, "lines": [1] * 100}))
        with pytest.raises(InvalidParams) as refused:
            await t.send(data_message({**GOOD, **{str(number) * 5000: 1 for number in range(9)}}))
    assert len(str(refused.value)) < 500


async def test_a_long_path_is_cut() -> None:
    class Deep(BaseModel):
        names: dict[str, dict[str, int]]

    async def handler(deep) -> None: ...  # type: ignore[no-untyped-def] # the annotation follows

    handler.__annotations__["deep"] = Deep
    async with worker_of(handler).test() as t:
        with pytest.raises(InvalidParams, match=r'"names\.a+\.a+" must be a whole number; and 3 more') as refused:
            await t.send(data_message({"names": {letter * 150: {letter * 150: "x"} for letter in "abcd"}}))
    assert len(str(refused.value)) < 300


async def test_data_with_more_values_than_are_validated_is_refused() -> None:
    class Numbers(BaseModel):
        numbers: list[int]

    async def handler(numbers) -> str:  # type: ignore[no-untyped-def] # the annotation follows
        return str(len(numbers.numbers))

    handler.__annotations__["numbers"] = Numbers
    async with worker_of(handler).test() as t:
        assert (await t.send(data_message({"numbers": [1] * (MAX_MODEL_VALUES - 1)}))).text == str(MAX_MODEL_VALUES - 1)
        with pytest.raises(InvalidParams, match="more than 100,000 values"):
            await t.send(data_message({"numbers": [1] * MAX_MODEL_VALUES}))


async def test_a_message_without_its_data_part_or_with_two_is_refused() -> None:
    async with worker_of(coroutine).test() as t:
        with pytest.raises(InvalidParams, match="must have a data part, for Order"):
            await t.send("one tea")
        with pytest.raises(InvalidParams, match="one data part, for Order, and has 2"):
            await t.send(data_message(GOOD, GOOD))


async def test_values_are_read_by_the_rules_for_json_also_in_strict_models() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        pair: tuple[int, int]

    async def handler(value) -> str:  # type: ignore[no-untyped-def] # the annotation follows
        return repr(value.pair)

    handler.__annotations__["value"] = Strict
    async with worker_of(handler).test() as t:
        assert (await t.send(data_message({"pair": [1, 2]}))).text == "(1, 2)"


# --- parameters


async def optional(
    order: Order | None, text: str | None, file: File | None, files_of: int = 3, note: str = "none"
) -> dict[str, Any]:
    return {"order": order and order.customer, "text": text, "file": file and file.name, "more": files_of, "note": note}


async def test_what_a_message_lacks_is_none_or_the_default() -> None:
    async with worker_of(optional).test() as t:
        empty = {"order": None, "text": None, "file": None, "more": 3, "note": "none"}
        assert (await t.send({"parts": [{"kind": "data", "data": GOOD}]})).data == {**empty, "order": "anna"}
        assert (await t.send("hi")).data == {**empty, "text": "hi", "note": "hi"}
        assert (await t.send(File("a.txt", raw=b"x"))).data == {**empty, "file": "a.txt"}
        with pytest.raises(InvalidParams, match='"lines" is missing'):
            await t.send(data_message({"customer": "anna"}))


async def several(text: str, order: Order, files: list[File], message: Message, task: Task) -> str:
    names = [(file.name, file.media_type, file.raw) for file in files]
    return f"{text} {order.customer} {names} {message.task_id == task.id}"


async def test_text_model_files_message_and_task_are_taken_together() -> None:
    files = [File("a", "text/plain", b"\0a"), File(raw=b"b")]
    async with worker_of(several).test() as t:
        reply = await t.send(["please", Order.model_validate(GOOD), *files])
        assert reply.text == r"please anna [('a', 'text/plain', b'\x00a'), ('', None, b'b')] True"
        assert (await t.send([{"kind": "data", "data": GOOD}])).text == " anna [] True"


async def of_file(file: File) -> bytes:
    return Artifact(file.name, raw=file.raw, media_type=file.media_type)  # type: ignore[return-value] # not read


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([], "must have a file"),
        ([{"kind": "file", "file": {"uri": "http://x/y"}}], r"message.parts\[1\] is a file with a url"),
        ([{"kind": "file", "file": {"bytes": "AA=="}}] * 2, "must have one file, and has 2"),
    ],
)
async def test_a_handler_of_one_file_refuses_other_messages(parts: Sequence[JsonObject], problem: str) -> None:
    async with worker_of(of_file).test() as t:
        with pytest.raises(InvalidParams, match=problem):
            await t.send({"parts": [{"kind": "text", "text": "hi"}, *parts]})
        sent = {"kind": "file", "file": {"bytes": b64encode(b"x").decode(), "name": "n", "mimeType": "m/n"}}
        assert (await t.send({"parts": [sent]})).artifacts == [Artifact("n", raw=b"x", media_type="m/n")]


def test_two_models_or_files_are_refused_at_decoration_and_so_is_a_name_that_does_not_exist() -> None:
    async def models(one: Order, other: Item) -> None: ...
    async def files(one: File, more: list[File]) -> None: ...
    async def absent(order: NoSuchModel) -> None: ...  # type: ignore[name-defined] # noqa: F821 that is the test
    async def pair(order: Order | Item) -> None: ...

    for handler, problem in (
        (models, "2 parameters for a model"),
        (files, "2 parameters for a File"),
        (absent, "'NoSuchModel', which does not exist in its module"),
        (pair, 'parameter "order" is annotated'),
    ):
        with pytest.raises(TypeError, match=problem):
            worker_of(handler)


async def test_a_bug_in_a_validator_is_no_mismatch() -> None:
    class Broken(BaseModel):
        @field_validator("*", mode="before")
        @classmethod
        def fail(cls, value: Any) -> Any:
            raise KeyError("secret")

        name: str

    async def handler(value) -> None: ...  # type: ignore[no-untyped-def] # the annotation follows

    handler.__annotations__["value"] = Broken
    async with worker_of(handler).test() as t:
        with pytest.raises(KeyError):
            await t.send(data_message({"name": "x"}))
        assert t.tasks.slots.busy == 0


# --- results


class Dated(BaseModel):
    when: date = Field(serialization_alias="paidOn")


async def test_a_result_is_written_as_json_with_its_aliases() -> None:
    async def handler() -> Dated:
        return Dated(when=date(2026, 1, 2))

    worker = worker_of(handler)
    async with worker.test() as t:
        assert (await t.call("x")).data == {"paidOn": "2026-01-02"}
    (skill,) = skills(worker.card("http://127.0.0.1:1/"))
    assert skill.output_schema and skill.output_schema["required"] == ["paidOn"]


class Texts(RootModel[list[str]]): ...


class OfAnything(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    value: Any


@pytest.mark.parametrize("result", [Texts(["a"]), OfAnything(value=object())])
async def test_a_model_that_is_no_json_object_fails_the_task(result: BaseModel) -> None:
    async def handler() -> Any:
        return result

    async with worker_of(handler).test() as t:
        with pytest.raises(TaskFailed, match="error id"):
            await t.call("hi")


async def test_a_result_that_is_not_the_model_of_the_caller_is_an_error_with_the_paths() -> None:
    async with worker_of(coroutine).test() as t:
        with pytest.raises(InvalidResult, match='The result does not match Item: "what" is missing; "price" is missing') as bad:
            await t.call(data_message(GOOD), returns=Item)
        assert (bad.value.facts["paths"], bad.value.task_id) == ("what,price", (await t.get(bad.value.task_id or "")).task_id)
    async with worker_of(of_text).test() as t:
        with pytest.raises(InvalidResult, match="no data part, and Item was expected"):
            await t.call("hi", returns=Item)
        assert (await t.call("hi")).text == "hi"


async def test_a_message_of_something_else_is_refused() -> None:
    async with worker_of(of_text).test() as t:
        with pytest.raises(TypeError, match="not of a int"):
            await t.send([1])  # type: ignore[list-item] # the test needs it


# --- status


async def count_up() -> Stream:
    yield Status("begun")
    yield Status(done=1, total=4)
    yield Status("half", done=2.0, total=4, data={"n": 1})
    yield Status(done=3, data=Invoice(total=3))
    yield Invoice(total=4)


async def test_a_status_carries_progress_and_data_and_clients_without_the_extension_read_text() -> None:
    async with worker_of(count_up).test() as t:
        events = [event async for event in t.stream("x")]
    found = [(event.kind, event.text, event.progress, event.data) for event in events]
    assert found == [
        ("task", "", None, None),
        ("status", "begun", None, None),
        ("status", "1/4", Progress(1, 4), None),
        ("status", "half", Progress(2, 4), {"n": 1}),
        ("status", "3", Progress(3, None), {"total": 3.0}),
        ("artifact", "", None, {"total": 4.0}),
        ("done", "", None, None),
    ]
    assert events[5].as_model(Invoice) == Invoice(total=4)
    with pytest.raises(InvalidResult, match="The event has no data part"):
        events[1].as_model(Invoice)
    message = events[2].raw["status"]["message"]
    assert (message["metadata"], message["extensions"]) == ({PROGRESS_EXTENSION: {"done": 1, "total": 4}}, [PROGRESS_EXTENSION])
    assert "metadata" not in events[1].raw["status"]["message"]


async def test_the_progress_of_a_task_is_read_from_its_snapshot() -> None:
    async def handler() -> Stream:
        yield Status(done=1, total=2)
        await asyncio.Event().wait()

    async with worker_of(handler).test() as t:
        running = await t.send("x", blocking=False)
        log = t.tasks.get(running.task_id or "")
        async with asyncio.timeout(5):
            while log.end < 2:  # noqa: ASYNC110 - a handler has no event to wait for
                await asyncio.sleep(0)
        assert event_of((await t.get(running.task_id or "")).raw, None).progress == Progress(1, 2)


@pytest.mark.parametrize("progress", [None, [], "x", {}, {"done": True}, {"done": "1"}, {"total": 3}])
async def test_progress_of_a_wrong_type_is_none(progress: Any) -> None:
    message = {"kind": "message", "role": "agent", "messageId": "m", "parts": [], "metadata": {PROGRESS_EXTENSION: progress}}
    status = {"state": "working", "message": message}
    event = {"kind": "status-update", "taskId": "t", "contextId": "c", "status": status, "final": False}
    assert event_of(event, None).progress is None


def test_a_status_without_anything_or_with_a_total_alone_is_refused() -> None:
    for options in ({}, {"text": "x", "total": 3}):
        with pytest.raises(ValueError, match="done"):
            Status(**options)
