"""Workers for the load tests, run as processes: `rolecall worker run tests.acceptance.loadworkers:page_writer`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from worker_sdk import Message, Worker

PAGE = 8000
"""Characters of one event of `page_writer`: 8 kB, of which the number is a part."""

page_writer = Worker("page_writer", description="Writes a number of numbered pages")
echo = Worker("echo", description="Returns the text of the message")
large = Worker("large", description="Answers with as many characters as it is told")


_written = os.open(os.environ["WRITTEN"], os.O_WRONLY | os.O_CREAT, 0o600) if "WRITTEN" in os.environ else None


def page(number: int) -> str:
    return f"{number} ".ljust(PAGE, ".")


def note(number: int) -> None:
    """Write to the file WRITTEN how many pages of the newest task its handler has yielded. It is overwritten in place,
    because a file system may sync a file that is truncated and written again.
    """
    if _written is not None:
        os.pwrite(_written, f"{number:>12}".encode(), 0)


@page_writer.on_message
async def write(message: Message) -> AsyncIterator[str]:
    """The text is `count` or `count pause`: the number of pages, and the seconds between them."""
    many, _, pause = message.text.partition(" ")
    for number in range(int(many)):
        yield page(number)
        note(number + 1)
        await asyncio.sleep(float(pause or 0))


@echo.on_message
async def say(message: Message) -> str:
    return message.text


@large.on_message
async def fill(message: Message) -> str:
    """The text is how many characters to answer with."""
    return "x" * int(message.text)
