"""Workers for the load tests, run as processes: `rolecall worker run tests.acceptance.loadworkers:reams`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from worker_sdk import Message, Worker

PAGE = 8000
"""Characters of one event of `reams`: 8 kB, of which the number is a part."""

reams = Worker("reams", description="Writes as many numbered pages as it is told")
echo = Worker("echo", description="Says what it hears")


_written = os.open(os.environ["WRITTEN"], os.O_WRONLY | os.O_CREAT, 0o600) if "WRITTEN" in os.environ else None


def page(number: int) -> str:
    return f"{number} ".ljust(PAGE, ".")


def note(number: int) -> None:
    """In the file that WRITTEN names: how many pages of the newest task have been taken from its handler. Written over in
    place, because a file system may sync one that is emptied and filled again.
    """
    if _written is not None:
        os.pwrite(_written, f"{number:>12}".encode(), 0)


@reams.on_message
async def write(message: Message) -> AsyncIterator[str]:
    """The text is `count` or `count pause`: how many pages, and seconds between them."""
    many, _, pause = message.text.partition(" ")
    for number in range(int(many)):
        yield page(number)
        note(number + 1)
        await asyncio.sleep(float(pause or 0))


@echo.on_message
async def say(message: Message) -> str:
    return message.text
