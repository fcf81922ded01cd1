"""The workers of these tests, all in one process: `python tests/seeds/workers.py` serves them until a signal comes.

They are simple, because the tests check the hub.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from rolecall import Artifact, Message, NeedInput, Reject, Status, Task, UserError, Worker
from worker_sdk.run import serve

SKILL = {
    "id": "count-up",
    "name": "Count up",
    "description": "Counts from zero, one number at a time",
    "tags": ["numbers", "slow"],
    "inputModes": ["text/plain"],
    "outputModes": ["text/plain"],
    "examples": ["3", "10 0.1"],
}

counter = Worker("counter", description="Counts to the given number", skills=[SKILL], models=["acme:small"])
question_worker = Worker("asker", description="Asks one question", skills=[{"id": "paint", "tags": ["colours"]}])
reject_worker = Worker("refuser", description="Rejects every task", skills=[{"id": "refuse"}])
fail_worker = Worker("failer", description="Fails in the requested way", skills=[{"id": "break"}])
echo_worker = Worker("mirror", description="Returns what it received", skills=[{"id": "reflect"}, {"id": "shared"}])
pair = [Worker("twin", instance=name, description="One of two", skills=[{"id": "shared"}]) for name in ("a", "b")]


@counter.on_message
async def count(message: Message) -> AsyncIterator[str | Status | Artifact]:
    """The text is `count` or `count pause`: how many numbers, and the seconds between them."""
    many, _, pause = message.text.partition(" ")
    yield Status("counting")
    for number in range(int(many)):
        yield f"{number} "
        await asyncio.sleep(float(pause or 0))
    yield Artifact(name="sum", data={"counted": int(many)})


@question_worker.on_message
async def ask(message: Message) -> AsyncGenerator[str | NeedInput, Message]:
    reply = yield NeedInput("Which colour?")
    yield f"{reply.text} it is"


@reject_worker.on_message
async def refuse(text: str) -> None:
    raise Reject(f"Not today: {text}")


@fail_worker.on_message
async def fail(text: str) -> None:
    if text == "politely":
        raise UserError("The disk is full.")
    raise ValueError("a secret of the worker")


@echo_worker.on_message
async def return_message(message: Message, task: Task) -> dict[str, Any]:
    return {"message": message.raw, "metadata": task.metadata}


def _set_handler(worker: Worker) -> None:
    @worker.on_message
    async def name(text: str) -> str:
        return worker.instance


async def main() -> None:
    for worker in pair:
        _set_handler(worker)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.gather(
        *(serve(w, stop=stop) for w in (counter, question_worker, reject_worker, fail_worker, echo_worker, *pair))
    )


if __name__ == "__main__":
    asyncio.run(main())
