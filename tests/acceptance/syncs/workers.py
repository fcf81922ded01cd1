"""Workers of the durability tests: `rolecall worker run tests.acceptance.syncs.workers:counter`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from tests.acceptance.syncs.words import word
from tests.acceptance.workers import note
from worker_sdk import Message, Worker

PAUSE = 0.05
PADDING = 600

counter = Worker("counter", description="Counts until the file that ENOUGH names is there", concurrency=64)
word_writer = Worker("word_writer", description="Sends unique words", concurrency=64)


@counter.on_message
async def count(message: Message) -> AsyncIterator[str]:
    """The last chunk is the number of chunks before it."""
    note(message)
    number = 0
    while not should_stop():
        yield f"{number} "
        number += 1
        await asyncio.sleep(PAUSE)
    yield f"that was {number}"


def should_stop() -> bool:
    return Path(os.environ["ENOUGH"]).exists()


@word_writer.on_message
async def tell(message: Message) -> AsyncIterator[str]:
    """The text starts with the number of words. Each word has padding, so that the database has work to do."""
    for _ in range(int(message.text.split()[0])):
        yield f"{word()} {secrets.token_hex(PADDING // 2)} "
        await asyncio.sleep(0.002)
