"""Workers that call each other in their tasks, for the tests of trees."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from pydantic import BaseModel

from rolecall import NeedInput, Task, TaskFailed, Worker

planner, writer, asker, ping, pong, leaf = (Worker(role) for role in ("planner", "writer", "asker", "ping", "pong", "leaf"))
spread, shouter, store, client, slow, waiter, quiet = (
    Worker(role) for role in ("spread", "shouter", "store", "client", "slow", "waiter", "quiet")
)
spender, spender_below = (Worker(role) for role in ("spender", "below"))
both, owner, plain, safe = Worker("both"), Worker("owner"), Worker("safe"), Worker("safe", idempotent=True)


@planner.on_message
async def plan(text: str, task: Task) -> str:
    """Has something written, and says what came back."""
    reply = await task.call("writer", text)
    return f"planned: {reply.text}"


@writer.on_message
async def write(text: str, task: Task) -> str:
    if text == "trace":
        return (await task.call("shouter", text, within=20)).text
    if text.startswith("ask"):
        return "wrote " + (await task.call("asker", text)).text
    return f"wrote {text}"


@asker.on_message
async def ask(text: str) -> AsyncGenerator[str | NeedInput, None]:
    """`ask until FILE`: answers when that file exists; `twice`: has another question."""
    answer = yield NeedInput("Which colour?")
    if " until " in text:
        await until_there(text.partition(" until ")[2])
    if "twice" in text:
        other = yield NeedInput("And which other?")
        yield f"in {answer.text} and {other.text}"
    else:
        yield f"in {answer.text}"


@safe.on_message
@plain.on_message
async def take_long(text: str) -> str:
    """Until the file of that name exists."""
    await until_there(text)
    return f"done after {os.environ['ROLECALL_INSTANCE']}"


@owner.on_message
async def have_it_done(text: str, task: Task) -> str:
    return (await task.call("safe", text)).text


@both.on_message
async def ask_and_call(text: str, task: Task) -> AsyncGenerator[str | NeedInput, None]:
    """Asks its caller, and calls another while it waits."""

    async def call_later() -> str:
        await asyncio.sleep(0.5)
        return (await task.call("shouter", text)).text

    called = asyncio.create_task(call_later())
    answer = yield NeedInput("Which?")
    yield f"{await called} {answer.text}"


@quiet.on_message
async def ask_once(text: str, task: Task) -> str:
    """Asks through a child that goes on, and does not wait long for the answer."""
    try:
        async with asyncio.timeout(0.5):
            await task.call("asker", text, goes_on=True)
    except TimeoutError:
        return "not answered"
    return "answered"


@ping.on_message
async def call_pong(text: str, task: Task) -> str:
    return (await task.call("pong", text)).text


@pong.on_message
async def call_ping(text: str, task: Task) -> str:
    return (await task.call("ping", text)).text


class Order(BaseModel):
    what: str
    count: int = 1


class Invoice(BaseModel):
    total: int


@store.skill("price")
async def price(wanted: Order) -> Invoice:
    return Invoice(total=3 * wanted.count)


@client.on_message
async def ask_price(text: str, task: Task) -> str:
    invoice = await task.call("store", Order(what=text, count=4), returns=Invoice, skill="price")
    return f"{text} for {invoice.total}"


@slow.on_message
async def take_time(text: str) -> str:
    """Answers after that many seconds, or when the file of that name exists."""
    if text.startswith("/"):
        await until_there(text)
    else:
        await asyncio.sleep(float(text))
    return "in time"


@waiter.on_message
async def wait_for_slow(text: str, task: Task) -> str:
    """What `slow` takes, also with `within LIMIT` or `timeout LIMIT` behind it."""
    seconds, _, rest = text.partition(" ")
    how, _, limit = rest.partition(" ")
    try:
        async with asyncio.timeout(float(limit) if how == "timeout" else None):
            reply = await task.call("slow", seconds, within=float(limit) if how == "within" else None)
    except TimeoutError:
        return "timed out"
    except TaskFailed as error:
        return f"failed: {error.reason}"
    return reply.text


@shouter.on_message
async def upper(text: str, task: Task) -> str:
    """`trace`: what came with the call."""
    return f"{task.trace} {task.trace_state} {task.remaining or 0:.0f}" if text == "trace" else text.upper()


@spender.on_message
async def use(text: str, task: Task) -> AsyncGenerator[str, None]:
    """`MODEL COUNT [ROLE]`: reports so often 10 tokens for a cent, or until the file of that name exists; and has the role do
    the same.
    """
    model, count, *role = text.split()
    number = 0
    while number < int(count) if count.isdigit() else not is_there(count):
        task.usage(model=model, input_tokens=8, output_tokens=2, cost="0.01")
        number += 1
        yield f"{number} "
        await asyncio.sleep(0.01)
    for name in role:
        await task.call(name, f"{model} {count}")


def is_there(file: str) -> bool:
    return Path(file).exists()


async def until_there(file: str) -> None:
    while not is_there(file):  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.01)


spender_below.on_message(use)


@leaf.on_message
async def wait(text: str) -> AsyncGenerator[str, None]:
    """Works for a long time."""
    yield "begun"
    await asyncio.sleep(600)


@spread.on_message
async def start_leaves(text: str, task: Task) -> str:
    """`3 goes-on`: starts that many leaves; the word declares them to go on."""
    count, _, goes_on = text.partition(" ")
    calls = (task.call("leaf", str(number), goes_on=bool(goes_on)) for number in range(int(count)))
    await asyncio.gather(*calls)
    return "done"
