"""The workers of these tests, all in one process: `python tests/seeds/workers.py` serves each of them until a signal comes.

They are as plain as a newcomer's: what is tested is what the hub makes of them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from worker_sdk import Artifact, Message, NeedInput, Reject, Status, Task, UserError, Worker
from worker_sdk.run import serve

SKILL = {
    "id": "count-up",
    "name": "Count up",
    "description": "Counts from nought, one number at a time",
    "tags": ["numbers", "slow"],
    "inputModes": ["text/plain"],
    "outputModes": ["text/plain"],
    "examples": ["3", "10 0.1"],
}

counter = Worker("counter", description="Counts to the number it is told", skills=[SKILL], models=["acme:small"])
asker = Worker("asker", description="Asks one question", skills=[{"id": "paint", "tags": ["colours"]}])
refuser = Worker("refuser", description="Takes nothing on", skills=[{"id": "refuse"}])
failer = Worker("failer", description="Breaks in the way it is told", skills=[{"id": "break"}])
mirror = Worker("mirror", description="Says what reached it", skills=[{"id": "reflect"}, {"id": "shared"}])
twins = [Worker("twin", instance=name, description="One of two", skills=[{"id": "shared"}]) for name in ("a", "b")]


@counter.on_message
async def count(message: Message) -> AsyncIterator[str | Status | Artifact]:
    """The text is `count` or `count pause`: how many, and seconds between them."""
    many, _, pause = message.text.partition(" ")
    yield Status("counting")
    for number in range(int(many)):
        yield f"{number} "
        await asyncio.sleep(float(pause or 0))
    yield Artifact(name="sum", data={"counted": int(many)})


@asker.on_message
async def ask(message: Message) -> AsyncGenerator[str | NeedInput, Message]:
    reply = yield NeedInput("Which colour?")
    yield f"{reply.text} it is"


@refuser.on_message
async def refuse(text: str) -> None:
    raise Reject(f"Not today: {text}")


@failer.on_message
async def fail(text: str) -> None:
    if text == "politely":
        raise UserError("The disk is full.")
    raise ValueError("a secret of the worker")


@mirror.on_message
async def reflect(message: Message, task: Task) -> dict[str, Any]:
    return {"message": message.raw, "metadata": task.metadata}


def _twin(worker: Worker) -> None:
    @worker.on_message
    async def name(text: str) -> str:
        return worker.instance


async def main() -> None:
    for worker in twins:
        _twin(worker)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.gather(*(serve(w, stop=stop) for w in (counter, asker, refuser, failer, mirror, *twins)))


if __name__ == "__main__":
    asyncio.run(main())
