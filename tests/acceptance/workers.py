"""Workers that the acceptance tests run as processes: `rolecall worker run tests.acceptance.workers:counter`.

Each writes one line per execution to the file RUNS, so that a test can count them.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path

from worker_sdk import Artifact, Message, NeedInput, Status, Worker

counter = Worker("counter", description="Counts to the given number, one event each", concurrency=64)
same = Worker("same", description="Sends ha a given number of times", concurrency=64)
asker = Worker("asker", description="Asks one question")
broken = Worker("broken", description="Works for a moment, or fails at once while the file BROKEN exists", concurrency=64)
instant = Worker("echo", description="Returns the text of the message")
files = Worker("files", description="Answers a file with its length, and a number with a file of so many bytes")


def note(message: Message) -> None:
    with Path(os.environ.get("RUNS", os.devnull)).open("a") as runs:
        runs.write(f"{message.message_id} {os.getpid()}\n")


@counter.on_message
async def count(message: Message) -> AsyncIterator[str | Status]:
    """The text is `count` or `count pause`: the number of events, and the seconds between them."""
    note(message)
    many, _, pause = message.text.partition(" ")
    yield Status("counting")
    for number in range(int(many)):
        yield f"{number} "
        await asyncio.sleep(float(pause or 0.02))


@same.on_message
async def repeat(message: Message) -> AsyncIterator[str]:
    note(message)
    many, _, pause = message.text.partition(" ")
    for _ in range(int(many)):
        yield "ha"
        await asyncio.sleep(float(pause or 0.02))


@asker.on_message
async def ask(message: Message) -> AsyncIterator[str | NeedInput]:
    note(message)
    reply = yield NeedInput("Which colour?")
    yield f"{reply.text} it is"


@instant.on_message
async def echo(message: Message) -> str:
    note(message)
    return message.text


@files.on_message
async def answer(message: Message) -> str | Artifact:
    part = message.parts[0]
    if "file" in part:
        return str(len(b64decode(part["file"]["bytes"])))
    return Artifact("a.bin", raw=b"a" * int(message.text), media_type="application/octet-stream")


@broken.on_message
async def work(message: Message) -> str:
    note(message)
    if is_broken():
        raise RuntimeError("broken")
    await asyncio.sleep(0.3)
    return message.text


def is_broken() -> bool:
    return "BROKEN" in os.environ and Path(os.environ["BROKEN"]).exists()
