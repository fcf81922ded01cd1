"""What a handler yields, returns or raises, and the resulting task."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from rolecall.errors import InvalidParams, TaskEnded, TaskNotCancelable, TaskNotFound, WorkerRefused
from rolecall.log import JsonFormatter
from rolecall.model.command import Target
from rolecall.protocol.v0_3.requests import read_send
from tests.helpers.clock import ManualClock
from worker_sdk import (
    Artifact,
    InputRequired,
    Message,
    NeedInput,
    Reject,
    Status,
    Task,
    TaskFailed,
    TaskRejected,
    UserError,
    Worker,
)
from worker_sdk.errors import RolecallError
from worker_sdk.tasks.task_table import TaskLimits
from worker_sdk.words import TooLarge

HandlerStream = AsyncGenerator[Any, Message]


def worker_of(handler: Callable[..., Any], **options: Any) -> Worker:
    worker = Worker("w", **options)
    worker.on_message(handler)
    return worker


async def ask(text: str) -> HandlerStream:
    reply = yield NeedInput(f"{text}?")
    yield reply.text


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - threads and handlers have no event to wait for
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("result", "part"),
    [
        ("hi", {"kind": "text", "text": "hi"}),
        ({"n": 1}, {"kind": "data", "data": {"n": 1}}),
        (
            Artifact("a", url="http://x/y", media_type="t/p"),
            {"kind": "file", "file": {"uri": "http://x/y", "name": "a", "mimeType": "t/p"}},
        ),
        (Artifact(raw=b"\0"), {"kind": "file", "file": {"bytes": "AA=="}}),
        (
            Artifact(text="# x", media_type="text/markdown"),
            {"kind": "text", "text": "# x", "metadata": {"rolecall": {"mediaType": "text/markdown"}}},
        ),
    ],
)
async def test_a_result_becomes_one_artifact_and_the_task_completes(result: Any, part: Any) -> None:
    async def handler() -> Any:
        return result

    async with worker_of(handler).test() as t:
        reply = await t.send("x")
    assert reply.state == "completed"
    assert [artifact["parts"] for artifact in reply.raw["artifacts"]] == [[part]]
    if isinstance(result, Artifact):
        assert reply.artifacts == [result]


@pytest.mark.parametrize(
    ("artifact", "members"),
    [
        (Artifact("a", text="x", description="why"), {"name": "a", "description": "why"}),
        (Artifact(text="x"), {}),
    ],
)
async def test_an_artifact_has_the_name_and_description_that_it_was_given(artifact: Artifact, members: dict[str, str]) -> None:
    async def handler() -> Artifact:
        return artifact

    async with worker_of(handler).test() as t:
        (found,) = (await t.send("x")).raw["artifacts"]
    assert {name: value for name, value in found.items() if name not in ("artifactId", "parts")} == members


async def test_returning_nothing_completes_without_artifact() -> None:
    async def handler() -> None: ...

    async with worker_of(handler).test() as t:
        reply = await t.send("x")
    assert (reply.state, list(reply.artifacts)) == ("completed", [])


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    def handler(text: str) -> str:
        return f"{text} {threading.current_thread() is threading.main_thread()}"

    async with worker_of(handler).test() as t:
        assert (await t.send("main:")).text == "main: False"


async def test_yielded_values_are_streamed_in_order_and_the_last_chunk_is_marked() -> None:
    async def handler() -> HandlerStream:
        yield Status("thinking")
        yield "a"
        yield Artifact("report", text="R")
        yield "b"

    async with worker_of(handler).test() as t:
        events = [event async for event in t.stream("x")]
    assert [(event.kind, event.text) for event in events] == [
        ("task", ""),
        ("status", "thinking"),
        ("text", "a"),
        ("text", "R"),
        ("text", "b"),
        ("text", ""),
        ("done", ""),
    ]
    assert [event.cursor for event in events] == [str(n) for n in range(1, 8)]
    chunks = [event.raw for event in events if event.kind == "text" and not event.raw["artifact"].get("name")]
    assert [(chunk["append"], chunk["lastChunk"]) for chunk in chunks] == [(False, False), (True, False), (True, True)]
    assert [[part["text"] for part in chunk["artifact"]["parts"]] for chunk in chunks] == [["a"], ["b"], [""]]
    assert len({chunk["artifact"]["artifactId"] for chunk in chunks}) == 1
    assert [event.raw["final"] for event in events if event.kind in ("status", "done")] == [False, True]


async def test_an_empty_text_is_not_an_event() -> None:
    async def handler() -> HandlerStream:
        yield ""
        yield "a"
        yield ""

    async with worker_of(handler).test() as t:
        events = [event async for event in t.stream("x")]
    assert [(event.kind, event.text) for event in events] == [("task", ""), ("text", "a"), ("text", ""), ("done", "")]


async def test_a_long_text_is_split_into_events_that_readers_accept() -> None:
    async def handler() -> str:
        return "\x01" * 300_000

    async with worker_of(handler).test() as t:
        events = [event async for event in t.stream("x")]
        reply = await t.get(events[0].raw["id"])
    assert "".join(event.text for event in events if event.kind == "text") == "\x01" * 300_000 == reply.text
    assert [event.raw["lastChunk"] for event in events if event.kind == "text"] == [False, False, True]


async def test_a_question_pauses_the_task_and_its_answer_resumes_at_the_yield() -> None:
    async with worker_of(ask).test() as t:
        asked = await t.send("ship")
        assert (asked.state, asked.text) == ("input-required", "ship?")
        with pytest.raises(InputRequired):
            asked.raise_for_state()
        done = await t.send("yes", task_id=asked.task_id)
    assert (done.task_id, done.state, done.text) == (asked.task_id, "completed", "yes")
    assert [Message(message).text for message in done.raw["history"]] == ["ship", "ship?", "yes"]


async def test_the_stream_ends_at_a_question_and_the_next_one_starts_with_the_working_task() -> None:
    async with worker_of(ask).test() as t:
        first = [event async for event in t.stream("ship")]
        task_id = first[0].raw["id"]
        second = [event async for event in t.stream("yes", task_id=task_id)]
    assert [event.kind for event in first] == ["task", "input_required"]
    assert first[-1].raw["final"] is True
    assert [event.kind for event in second] == ["task", "text", "text", "done"]
    assert second[0].state == "working"
    assert [event.cursor for event in second] == ["3", "4", "5", "6"]


async def test_reject_and_user_error_keep_their_text_and_other_exceptions_get_an_error_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(text: str) -> str:
        raise {"reject": Reject("not mine"), "user": UserError("no such file")}.get(text) or RuntimeError("secret /etc")

    async with worker_of(handler).test() as t:
        rejected, user_error, failed = [await t.send(kind) for kind in ("reject", "user", "bug")]
    assert (rejected.state, rejected.text) == ("rejected", "not mine")
    assert (user_error.state, user_error.text) == ("failed", "no such file")
    assert failed.state == "failed"
    assert failed.text.startswith("Agent failed (error id ")
    assert "secret" not in str(failed.raw)
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    error_id, _, where = failed.text.removeprefix("Agent failed ").partition(": ")
    assert error_id in record.getMessage()
    assert where.startswith("the log of w:") and where.endswith(" says why")
    assert record.exc_info and "secret" in str(record.exc_info[1])
    with pytest.raises(TaskRejected, match="not mine"):
        rejected.raise_for_state()
    with pytest.raises(TaskFailed, match="no such file"):
        user_error.raise_for_state()


@pytest.mark.parametrize("plain", [False, True])
async def test_a_log_names_the_task_as_the_hub_does_and_beside_it_as_the_worker_does(plain: bool) -> None:
    def fail(text: str) -> None:
        logging.getLogger("own").warning("step")
        raise ValueError("no")

    async def fail_later(text: str) -> None:
        fail(text)

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    try:
        async with worker_of(fail if plain else fail_later).test() as t:
            own = []
            for hub_task in ("hub-1", ""):
                message = {"messageId": f"m{hub_task}", "parts": [{"kind": "text", "text": "x"}]}
                log = t.tasks.deliver(read_send({"message": message}, Target()), hub_task=hub_task).log
                await log.wait_until_resting()
                own.append(log.task_id)
    finally:
        logging.getLogger().removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in lines[:2]:
        assert (line["role"], line["task"], line["worker_task"]) == ("w", "hub-1", own[0])
    for line in lines[2:]:
        assert line["task"] == own[1] and "worker_task" not in line
    assert [line["event"] for line in lines] == ["step", "task_failed"] * 2
    assert lines[1]["message"].startswith(f"task hub-1 (here {own[0]}) failed (error id ")
    assert lines[3]["message"].startswith(f"task {own[1]} failed (error id ")


async def test_yielding_something_else_fails_the_task() -> None:
    async def handler() -> HandlerStream:
        yield 1

    async with worker_of(handler).test() as t:
        assert (await t.send("x")).state == "failed"


async def test_cancel_raises_in_the_handler_and_the_task_is_canceled_when_it_has_ended() -> None:
    seen: list[str] = []

    async def handler() -> HandlerStream:
        yield "begun"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            yield Status("cleaning up")
            raise

    async with worker_of(handler).test() as t:
        reply = await t.send("x", blocking=False)
        assert reply.task_id
        await until(lambda: t.tasks.get(reply.task_id or "").end == 2)
        canceled = await t.cancel(reply.task_id)
        with pytest.raises(TaskNotCancelable):
            await t.cancel(reply.task_id)
    assert seen == ["cancelled"]
    assert canceled.state == "canceled"


async def test_cancel_works_before_the_handler_starts_and_while_it_waits() -> None:
    async with worker_of(ask).test() as t:
        early = await t.send("x", blocking=False)
        asked = await t.send("y")
        assert early.task_id and asked.task_id
        assert (await t.cancel(asked.task_id)).state == "canceled"
        fresh = await t.send("z", blocking=False)
        assert (await t.cancel(fresh.task_id or "")).state == "canceled"
        with pytest.raises(TaskEnded):
            await t.send("answer", task_id=asked.task_id)


async def test_the_first_terminal_state_is_kept() -> None:
    async def handler(text: str) -> str:
        return text

    async with worker_of(handler).test() as t:
        reply = await t.send("x")
        with pytest.raises(TaskNotCancelable):
            await t.cancel(reply.task_id or "")
        assert (await t.get(reply.task_id or "")).state == "completed"


async def test_a_call_above_the_concurrency_is_refused_and_never_queued() -> None:
    may_end = asyncio.Event()

    async def handler(text: str) -> str:
        await may_end.wait()
        return text

    async with worker_of(handler, concurrency=2).test() as t:
        running = [await t.send(str(n), blocking=False) for n in range(2)]
        with pytest.raises(WorkerRefused):
            await t.send("too much")
        may_end.set()
        await until(lambda: t.tasks.slots.busy == 0)
        assert (await t.send("again")).text == "again"
        assert [(await t.get(reply.task_id or "")).text for reply in running] == ["0", "1"]


async def test_a_paused_task_takes_no_slot_and_its_answer_needs_one() -> None:
    async with worker_of(ask, concurrency=1).test() as t:
        first, second = await t.send("a"), await t.send("b")
        assert t.tasks.slots.busy == 0
        assert (await t.send("A", task_id=first.task_id)).text == "A"
        t.tasks.slots.take()
        with pytest.raises(WorkerRefused):
            await t.send("B", task_id=second.task_id)
        t.tasks.slots.release()
        assert (await t.send("B", task_id=second.task_id)).text == "B"


async def test_a_cancelled_plain_function_keeps_its_slot_until_its_thread_ends() -> None:
    may_end = threading.Event()

    def handler() -> None:
        may_end.wait(5)

    async with worker_of(handler, concurrency=1).test() as t:
        reply = await t.send("x", blocking=False)
        await until(lambda: any("handler of task" in thread.name for thread in threading.enumerate()))
        assert (await t.cancel(reply.task_id or "")).state == "canceled"
        with pytest.raises(WorkerRefused):
            await t.send("y")
        may_end.set()
        await until(lambda: t.tasks.slots.busy == 0)


async def test_a_repeated_message_runs_once_and_gives_the_same_task() -> None:
    runs: list[str] = []

    async def handler(text: str) -> str:
        runs.append(text)
        return text

    message = {"messageId": "m1", "parts": [{"kind": "text", "text": "once"}]}
    async with worker_of(handler).test() as t:
        first = await t.send(message)
        again = await t.send(message)
        streamed = [event async for event in t.stream(message)]
        other = await t.send({**message, "parts": [{"kind": "text", "text": "other words"}]})
    assert runs == ["once", "other words"]
    assert first.task_id == again.task_id == streamed[0].raw["id"] != other.task_id
    assert [(event.cursor, event.kind) for event in streamed] == [("1", "task"), ("2", "text"), ("3", "done")]


async def test_a_repeated_answer_runs_once() -> None:
    async with worker_of(ask).test() as t:
        asked = await t.send("q")
        answer = {"messageId": "m2", "parts": [{"kind": "text", "text": "a"}]}
        done = await t.send(answer, task_id=asked.task_id)
        assert (await t.send(answer, task_id=asked.task_id)).raw == done.raw


async def test_messages_to_tasks_that_cannot_accept_them_are_refused() -> None:
    may_end = asyncio.Event()

    async def handler() -> None:
        await may_end.wait()

    async with worker_of(handler).test() as t:
        with pytest.raises(TaskNotFound):
            await t.send("x", task_id="unknown")
        running = await t.send("x", blocking=False)
        with pytest.raises(InvalidParams, match="working"):
            await t.send("y", task_id=running.task_id)
        with pytest.raises(InvalidParams, match="context"):
            await t.send("y", task_id=running.task_id, context_id="another")
        may_end.set()
        await until(lambda: t.tasks.get(running.task_id or "").ended)
        with pytest.raises(TaskEnded):
            await t.send("y", task_id=running.task_id)


async def test_ended_tasks_are_removed_by_age_and_number_and_running_ones_never() -> None:
    clock, may_end = ManualClock(), asyncio.Event()

    async def handler(text: str) -> str:
        if text == "stay":
            await may_end.wait()
        return text

    worker = worker_of(handler, limits=TaskLimits(keep=10, keep_tasks=2), monotonic=clock.monotonic)
    async with worker.test() as t:
        running = await t.send("stay", blocking=False)
        old = await t.send("old")
        clock.advance(9)
        recent = await t.send("young")
        clock.advance(1)
        with pytest.raises(TaskNotFound):
            await t.get(old.task_id or "")
        assert (await t.get(recent.task_id or "")).text == "young"
        for n in range(3):
            await t.send(str(n))
        with pytest.raises(TaskNotFound):
            await t.get(recent.task_id or "")
        assert (await t.get(running.task_id or "")).state == "working"


async def test_an_ended_task_is_kept_for_an_hour() -> None:
    async def handler() -> None: ...

    clock = ManualClock()
    async with worker_of(handler, monotonic=clock.monotonic).test() as t:
        ended = await t.send("x")
        clock.advance(3_599)
        assert (await t.get(ended.task_id or "")).state == "completed"
        clock.advance(1)
        with pytest.raises(TaskNotFound):
            await t.get(ended.task_id or "")


def test_a_plain_function_gets_32_threads_at_most_and_an_async_one_has_no_limit() -> None:
    def plain() -> None: ...
    async def on_loop() -> None: ...

    assert (worker_of(plain).concurrency, worker_of(on_loop).concurrency) == (32, None)
    assert worker_of(plain, concurrency=2).concurrency == 2


async def test_finish_waits_for_running_tasks_and_fails_the_rest_with_a_reason() -> None:
    may_end = asyncio.Event()

    async def handler(text: str) -> str:
        await (may_end if text == "quick" else asyncio.Event()).wait()
        return text

    async with worker_of(handler).test() as t:
        quick, blocked = await t.send("quick", blocking=False), await t.send("stuck", blocking=False)
        may_end.set()
        assert await t.tasks.finish(0.05, "stopped") == 1
        with pytest.raises(WorkerRefused, match="drained"):
            await t.send("late")
        assert (await t.get(quick.task_id or "")).state == "completed"
        failed = await t.get(blocked.task_id or "")
    assert (failed.state, failed.text) == ("failed", "stopped")


async def test_a_question_of_a_stopped_worker_is_left_to_the_hub() -> None:
    """It ends the task, with its reason, when the worker withdraws."""

    async def handler() -> HandlerStream:
        yield NeedInput("?")

    async with worker_of(handler).test() as t:
        asked = await t.send("x")
        assert await t.tasks.finish(0.05, "Stopped.") == 1
        assert (await t.get(asked.task_id or "")).state == "input-required"


async def test_the_trace_of_each_turn_reaches_the_handler() -> None:
    trace_headers: list[str | None] = []

    async def handler(task: Task) -> HandlerStream:
        trace_headers.append(task.trace)
        yield NeedInput("?")
        trace_headers.append(task.trace)

    async with worker_of(handler).test() as t:
        first = t.tasks.deliver(read_send({"message": {"parts": [{"text": "x"}]}}, Target(), trace="t1")).log
        await first.wait_until_resting()
        more = {"message": {"parts": [{"text": "y"}], "taskId": first.task_id}}
        await t.tasks.deliver(read_send(more, Target(), trace="t2")).log.wait_until_resting()
    assert trace_headers == ["t1", "t2"]


# --- what is large


LEAST = 64 * 1024


@pytest.mark.parametrize("result", [{"n": "x" * LEAST}, Artifact(data={"n": "x" * LEAST})])
async def test_what_one_event_cannot_hold_fails_with_the_settings_of_both_sides(result: Any) -> None:
    async def handler(_: str) -> Any:
        return result

    async with worker_of(handler, max_event=LEAST).test() as bench:
        reply = await bench.send("hi")
    assert reply.state == "failed"
    assert "max_event of the Worker, and ROLECALL_MAX_EVENT of its hub" in reply.text


async def test_a_handler_may_send_something_smaller_instead() -> None:
    async def handler(_: str) -> HandlerStream:
        try:
            yield {"n": "x" * LEAST}
        except TooLarge:
            yield "too large"

    async with worker_of(handler, max_event=LEAST).test() as bench:
        assert (await bench.send("hi")).text == "too large"


def test_an_event_may_not_be_limited_to_less_than_a_piece_of_text_takes() -> None:
    with pytest.raises(ValueError, match="max_event is 65536 or more"):
        Worker("w", max_event=LEAST - 1)


async def test_a_task_that_came_through_no_hub_can_call_nobody() -> None:
    worker = Worker("alone")

    @worker.on_message
    async def call(text: str, task: Task) -> str:
        with pytest.raises(RolecallError, match="did not come through a hub"):
            await task.call("other", text)
        return "alone"

    log = worker.tasks.deliver(read_send({"message": {"parts": [{"text": "hi"}]}}, Target())).log
    await log.wait_until_resting()
    assert b"alone" in log.snapshot()
