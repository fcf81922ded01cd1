"""What a handler calls in its task: children, their questions and their ends. The workers run in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from rolecall.errors import InvalidParams
from rolecall.model.command import Target
from rolecall.protocol.v0_3.requests import read_send
from tests.helpers.pages import blocks_of
from worker_sdk import InputRequired, Message, NeedInput, Reject, RoleUnknown, Task, TaskFailed, TaskRejected, UserError, Worker
from worker_sdk.errors import HubUnreachable, RolecallError
from worker_sdk.testing.bench import Bench


def worker(role: str, handler: Callable[..., Any], **options: Any) -> Worker:
    made = Worker(role, **options)
    made.on_message(handler)
    return made


async def ask(text: str) -> AsyncGenerator[str | NeedInput, None]:
    answer = yield NeedInput(f"Which {text}?")
    while answer.text == "again":
        answer = yield NeedInput(f"Which other {text}?")
    yield f"{answer.text} {text}"


async def wait(text: str) -> None:
    await asyncio.sleep(60)


def caller_of(*roles: str, **how: Any) -> Callable[..., Any]:
    async def call(text: str, task: Task) -> str:
        replies = await asyncio.gather(*(task.call(role, text, **how) for role in roles))
        return " and ".join(reply.text for reply in replies)

    return call


asker, middle = worker("asker", ask), worker("middle", caller_of("asker"))


def deliver_answer(bench: Bench, task_id: str, text: str) -> None:
    """Nobody is told of it."""
    message = {"messageId": text, "taskId": task_id, "parts": [{"kind": "text", "text": text}]}
    bench.tasks.deliver(read_send({"message": message}, Target()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - handlers have no event to wait for
            await asyncio.sleep(0)


async def test_a_handler_calls_another_role() -> None:
    async def upper(text: str, task: Task) -> str:
        return f"{text.upper()} {task.trace}"

    root = worker("root", caller_of("shouter"))
    async with root.test(roles={"shouter": worker("shouter", upper)}) as t:
        assert (await t.call("hi")).text == "HI None"


async def test_a_child_has_no_more_time_than_its_parent_and_its_trace() -> None:
    async def tell(text: str, task: Task) -> str:
        return f"{'none' if task.remaining is None else round(task.remaining)} {task.trace}"

    async def call(text: str, task: Task) -> str:
        replies = [await task.call("told", text, within=within) for within in (None, 5, 500)]
        return ", ".join(reply.text for reply in replies)

    async with worker("root", call).test(roles={"told": worker("told", tell)}) as t:
        assert (await t.send("hi", within=50, trace="t")).text == "50 t, 5 t, 50 t"
        assert (await t.call("hi")).text == "none None, 5 None, 500 None"


async def test_a_result_is_read_as_a_model() -> None:
    class Total(BaseModel):
        total: int

    async def price(text: str) -> Total:
        return Total(total=len(text))

    async def call(text: str, task: Task) -> str:
        return str((await task.call("shop", text, returns=Total)).total)

    async with worker("root", call).test(roles={"shop": worker("shop", price)}) as t:
        assert (await t.call("four")).text == "4"


async def test_a_stream_brings_the_events_of_the_child() -> None:
    counter = Worker("counter")

    @counter.skill("up")
    async def count(text: str) -> AsyncGenerator[str, None]:
        for number in range(3):
            yield str(number)

    @counter.skill("down")
    async def count_down(text: str) -> str:
        return "210"

    async def call(text: str, task: Task) -> str:
        async with task.stream("counter", text, skill="up") as stream:
            return "".join([event.text async for event in stream if event.kind == "text"])

    async with worker("root", call).test(roles={"counter": counter}) as t:
        assert (await t.call("go")).text == "012"


@pytest.mark.parametrize(("error", "raised"), [(UserError("no"), TaskFailed), (Reject("no"), TaskRejected)])
async def test_a_child_that_fails_raises(error: Exception, raised: type[Exception]) -> None:
    async def fail(text: str) -> None:
        raise error

    async def call(text: str, task: Task) -> str:
        with pytest.raises(raised, match="no"):
            await task.call("failing", text)
        return "caught"

    async with worker("root", call).test(roles={"failing": worker("failing", fail)}) as t:
        assert (await t.call("go")).text == "caught"


def failing(raised: Exception | None = None) -> Worker:
    async def book(text: str) -> None:
        if raised is not None:
            raise raised

    return worker("booker", book)


@pytest.mark.parametrize(
    ("raised", "called", "why"),
    [
        (UserError("no seats"), "booker", "no seats (TASK_FAILED, task "),
        (UserError("x" * 4_001), "booker", f"{'x' * 4_000}… (TASK_FAILED, task "),
        (UserError("no\n  seats\n"), "booker", "no seats (TASK_FAILED, task "),
        (Reject("no dogs"), "booker", "no dogs (TASK_REJECTED, task "),
        (ValueError("secret"), "booker", "Agent failed (error id "),
        (None, "baker", 'No role "baker". Live: booker, root. Did you mean booker? (ROLE_UNKNOWN)'),
    ],
)
@pytest.mark.parametrize("how", ["call", "stream", "group"])
async def test_a_task_that_fails_because_of_its_call_says_why(
    raised: Exception | None, called: str, why: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(text: str, task: Task) -> str:
        if how == "call":
            return (await task.call(called, text)).text
        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(task.call(called, text))
                group.create_task(asyncio.sleep(60))
        async with task.stream(called, text) as stream:
            return (await stream.reply()).raise_for_state().text

    async with worker("root", ask).test(roles={"booker": failing(raised)}) as t:
        with pytest.raises(TaskFailed) as failed:
            await t.call("hi")
        assert str(failed.value).startswith(f"Its call to {called} failed: {why}")
        assert f"failed: Its call to {called} failed: " in caplog.text and "Traceback" in caplog.text
        assert "secret" not in str(failed.value)


async def test_the_reason_of_a_failure_comes_up_a_tree() -> None:
    roles = {"middle": worker("middle", caller_of("booker")), "booker": failing(UserError("no seats"))}
    async with worker("root", caller_of("middle")).test(roles=roles) as t:
        with pytest.raises(
            TaskFailed, match=r"^Its call to middle failed: Its call to booker failed: no seats \(TASK_FAILED, task "
        ):
            await t.call("hi")


@pytest.mark.parametrize(
    "error",
    [HubUnreachable("http://10.0.0.7 refuses"), RolecallError("own error", code=-32000), ValueError("secret")],
    ids=["the hub is away", "not of a call", "another exception"],
)
async def test_other_exceptions_are_told_to_nobody(error: Exception) -> None:
    async def fail(text: str, task: Task) -> None:
        try:
            await task.call("baker", text)
        except RolecallError as refused:
            if isinstance(error, HubUnreachable):
                error.called = refused.called
            raise error from refused

    async with worker("root", fail).test(roles={"booker": failing()}) as t:
        with pytest.raises(TaskFailed, match=r"^Agent failed \(error id \w{4}\): the log of root:\S+ says why"):
            await t.call("hi")


async def test_calls_that_the_hub_would_refuse_are_refused() -> None:
    async def call(text: str, task: Task) -> str:
        with pytest.raises(RoleUnknown, match="other"):
            await task.call("other", text)
        with pytest.raises(RolecallError, match="root > root") as refused:
            await task.call("root", text)
        return refused.value.reason

    async with worker("root", call).test() as t:
        assert (await t.call("go")).text == "CHAIN_REFUSED"


async def test_a_question_of_a_child_is_asked_and_the_answer_goes_down() -> None:
    async with worker("root", caller_of("middle")).test(roles={"middle": middle, "asker": asker}) as t:
        asked = await t.send("colour")
        (child,) = t.roles["middle"].tasks
        status = asked.raw["status"]
        assert (asked.state.value, status["message"]["parts"][0]["text"]) == ("input-required", "Which colour?")
        assert asked.raw["metadata"]["child"] == child.log.task_id
        answered = await t.send("again", task_id=asked.task_id)
        assert answered.message is not None and answered.message.text == "Which other colour?"
        assert (await t.send("blue", task_id=asked.task_id)).text == "blue colour"


@pytest.mark.parametrize("role", ["asker", "middle"])
async def test_an_answer_to_a_child_wakes_those_above_it(role: str) -> None:
    async with worker("root", caller_of("middle")).test(roles={"middle": middle, "asker": asker}) as t:
        asked = await t.send("colour")
        (child,) = t.roles[role].tasks
        await t.roles[role].send("blue", task_id=child.log.task_id)
        (root,) = t.tasks
        await root.wait_ended()
        assert (await t.get(str(asked.task_id))).text == "blue colour"


async def test_the_next_question_of_a_child_that_was_answered_directly_is_asked() -> None:
    async with worker("root", caller_of("asker")).test(roles={"asker": asker}) as t:
        asked = await t.send("colour")
        (child,) = t.roles["asker"].tasks
        deliver_answer(t.roles["asker"], child.log.task_id, "again")
        await until(lambda: child.log.resting)
        await t.look(str(asked.task_id))
        (root,) = t.tasks
        await until(lambda: root.log.resting)
        again = await t.get(str(asked.task_id))
        assert again.message is not None and again.message.text == "Which other colour?"
        assert (await t.send("blue", task_id=asked.task_id)).text == "blue colour"


@pytest.mark.parametrize("ended", [False, True])
async def test_an_answer_that_comes_too_late_for_the_child_is_dropped(ended: bool) -> None:
    async def slow(text: str) -> AsyncGenerator[str | NeedInput, None]:
        answer = yield NeedInput("Which?")
        await asyncio.sleep(0 if ended else 0.05)
        yield answer.text

    async with worker("root", caller_of("slow")).test(roles={"slow": worker("slow", slow)}) as t:
        asked = await t.send("colour")
        (child,) = t.roles["slow"].tasks
        deliver_answer(t.roles["slow"], child.log.task_id, "blue")
        await until(lambda: child.log.ended is ended and not child.waits)
        assert (await t.send("red", task_id=asked.task_id)).text == "blue"


async def test_children_that_ask_do_so_one_after_the_other() -> None:
    other = worker("other", ask)
    async with worker("root", caller_of("asker", "other")).test(roles={"asker": asker, "other": other}) as t:
        asked = await t.send("colour")
        await t.send("blue", task_id=asked.task_id)
        assert (await t.send("red", task_id=asked.task_id)).text == "blue colour and red colour"


async def test_a_child_that_is_answered_while_another_asks_is_not_asked_for() -> None:
    other = worker("other", ask)
    async with worker("root", caller_of("asker", "other")).test(roles={"asker": asker, "other": other}) as t:
        asked = await t.send("colour")
        (child,) = t.roles["other"].tasks
        await t.roles["other"].send("red", task_id=child.log.task_id)
        assert (await t.get(str(asked.task_id))).state.value == "input-required"
        assert (await t.send("blue", task_id=asked.task_id)).text == "blue colour and red colour"


async def test_a_task_that_has_no_slot_goes_on_when_there_is_one() -> None:
    hold = asyncio.Event()

    async def call(text: str, task: Task) -> str:
        if text == "hold":
            await hold.wait()
            return text
        return (await task.call("asker", text)).text

    async with worker("root", call, concurrency=1).test(roles={"asker": asker}) as t:
        asked = await t.send("colour")
        await t.send("hold", blocking=False)
        (child,) = t.roles["asker"].tasks
        await t.roles["asker"].send("blue", task_id=child.log.task_id)
        assert (await t.get(str(asked.task_id))).state.value == "input-required"
        hold.set()
        first, second = t.tasks
        await second.wait_ended()
        await t.look(str(asked.task_id))
        assert t.tasks.slots.busy == 1
        await first.wait_ended()
        assert (await t.get(str(asked.task_id))).text == "blue colour"


async def test_with_raise_a_question_is_an_error() -> None:
    async def call(text: str, task: Task) -> str:
        with pytest.raises(InputRequired, match="Which colour"):
            await task.call("asker", text, questions="raise")
        return "not asked"

    async with worker("root", call).test(roles={"asker": asker}) as t:
        assert (await t.call("colour")).text == "not asked"
        (child,) = t.roles["asker"].tasks
        await until(lambda: child.log.state.value == "canceled")


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("role", ["asker", "waiting"])
async def test_a_call_that_is_given_up_cancels_its_child_unless_that_goes_on(role: str, goes_on: bool) -> None:
    hold = asyncio.Event()

    async def call(text: str, task: Task) -> str:
        try:
            async with asyncio.timeout(0.05):
                await task.call(role, text, goes_on=goes_on)
        except TimeoutError:
            await hold.wait()
            return "given up"
        return "done"

    roles = {"asker": asker, "waiting": worker("waiting", wait)}
    async with worker("root", call, concurrency=1).test(roles=roles) as t:
        await t.send("colour", blocking=False)
        (root,) = t.tasks
        await asyncio.sleep(0.1)
        assert (root.log.state.value, t.tasks.slots.busy) == ("working", 1)
        hold.set()
        await root.wait_ended()
        assert (await t.get(root.log.task_id)).text == "given up"
        (child,) = t.roles[role].tasks
        going_on = "input-required" if role == "asker" else "working"
        assert child.log.state.value == (going_on if goes_on else "canceled")
        assert t.tasks.slots.busy == 0


async def test_the_end_of_a_task_cancels_its_child_unless_that_goes_on() -> None:
    async def call(text: str, task: Task) -> None:
        for goes_on in (False, True):
            async with task.stream("waiting", text, goes_on=goes_on) as stream:
                await anext(aiter(stream))

    async with worker("root", call).test(roles={"waiting": worker("waiting", wait)}) as t:
        await t.call("go")
        one, other = t.roles["waiting"].tasks
        await until(lambda: one.log.state.value == "canceled")
        assert other.log.state.value == "working"


def counted(role: str, hold: asyncio.Event, seen: list[str], **options: Any) -> Worker:
    """Notes the id of each message, and answers once it is let go."""

    async def work(message: Message) -> str:
        seen.append(message.message_id)
        await hold.wait()
        return "done"

    return worker(role, work, **options)


async def test_a_call_to_a_lost_worker_that_is_idempotent_is_made_once_more() -> None:
    hold, seen = asyncio.Event(), list[str]()
    async with worker("root", caller_of("safe")).test(roles={"safe": counted("safe", hold, seen, idempotent=True)}) as t:
        asked = await t.send({"messageId": "mine", "parts": [{"kind": "text", "text": "go"}]}, blocking=False)
        await until(lambda: len(seen) == 1)
        await t.roles["safe"].lose()
        await until(lambda: len(seen) == 2)
        assert len(set(seen)) == 2
        hold.set()
        (root,) = t.tasks
        await root.wait_ended()
        assert (await t.get(str(asked.task_id))).text == "done"
        assert [one.log.state.value for one in t.roles["safe"].tasks] == ["failed", "completed"]


@pytest.mark.parametrize(("idempotent", "times"), [(False, 1), (True, 2)])
async def test_a_lost_worker_is_called_again_once_and_only_if_it_is_idempotent(idempotent: bool, times: int) -> None:
    seen = list[str]()

    async def call(text: str, task: Task) -> str:
        with pytest.raises(TaskFailed, match="is gone") as failed:
            await task.call("safe", Message({"messageId": "1", "parts": [{"kind": "text", "text": "go"}]}))
        return failed.value.reason

    safe = counted("safe", asyncio.Event(), seen, idempotent=idempotent)
    async with worker("root", call).test(roles={"safe": safe}) as t:
        asked = await t.send("go", blocking=False)
        for count in range(1, times + 1):
            await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
            await t.roles["safe"].lose()
        (root,) = t.tasks
        await root.wait_ended()
        assert (await t.get(str(asked.task_id))).text == "WORKER_LOST"
        assert (len(seen), len(set(seen))) == (times, times)


async def test_a_call_without_time_left_is_not_made_again() -> None:
    seen = list[str]()

    async def call(text: str, task: Task) -> str:
        with pytest.raises(TaskFailed):
            await task.call("safe", text, within=0.05)
        return "failed"

    async with worker("root", call).test(roles={"safe": counted("safe", asyncio.Event(), seen, idempotent=True)}) as t:
        await t.send("go", blocking=False)
        await asyncio.sleep(0.1)
        await t.roles["safe"].lose()
        (root,) = t.tasks
        await root.wait_ended()
        assert len(seen) == 1


async def test_an_answer_while_the_task_works_is_refused() -> None:
    async with worker("root", caller_of("asker")).test(roles={"asker": asker}) as t:
        asked = await t.send("colour")
        await t.send("blue", task_id=asked.task_id, blocking=False)
        with pytest.raises(InvalidParams, match="working"):
            await t.send("red", task_id=asked.task_id)


async def test_the_test_of_the_how_to_passes() -> None:
    page = blocks_of("docs/howto/agents-that-call-agents.md")
    shouter = Worker("shouter")

    @shouter.on_message
    async def upper(text: str) -> str:
        return text.upper()

    names: dict[str, Any] = {"__name__": "editor", "shouter": shouter}
    exec(page["worker"] + page["test"], names)
    await names["test_the_editor_signs"]()
