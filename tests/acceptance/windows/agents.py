"""A worker that repeats words one by one, and gives a file back from its disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from tempfile import TemporaryDirectory

from rolecall import File, Message, Worker

worker = Worker("mirror", description="Gives back what it gets", concurrency=4)


@worker.on_message
async def repeat(text: str, files: list[File]) -> AsyncGenerator[str | File, Message]:
    for word in text.split():
        yield f"{word} "
        await asyncio.sleep(0.08)
    with TemporaryDirectory() as folder:
        for file in files:
            yield File(file.name, path=await file.save(folder))
