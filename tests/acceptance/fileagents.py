"""Agents that take and give files, and a client of theirs with its memory: `python -m tests.acceptance.fileagents PATH MiB`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory

from rolecall import File, HubClient, Message, Task, Worker

mirror = Worker("mirror", description="Gives a file back from its disk")
middle = Worker("middle", description="Has a file mirrored by another agent, and passes on what comes")
reader = Worker("reader", description="Reads a file in a plain function")


@mirror.on_message
async def give_back(file: File) -> AsyncGenerator[File, Message]:
    with TemporaryDirectory() as folder:
        yield File(f"mirrored {file.name}", file.media_type, path=await file.save(folder))


@middle.on_message
async def pass_on(file: File, task: Task) -> File:
    return (await task.call("mirror", "this", files=[file])).files[0]


@reader.on_message
def count(file: File) -> dict[str, int]:
    with file.open() as opened:
        return {"size": sum(len(piece) for piece in iter(lambda: opened.read(1_000_000), b""))}


async def call(role: str, path: Path) -> None:
    """Sends the file, saves the one that comes back, and prints the digests of both, and how much memory that took."""
    before = _forget_peak()
    async with HubClient() as hub, hub.stream(role, "this", files=[path]) as stream:
        (file,) = [file async for event in stream for file in event.files]
        saved = await file.save(path.with_suffix(".back"))
    grown = _memory("VmHWM") - before
    print(json.dumps({"name": file.name, "grown": grown, "sent": _digest(path), "came": _digest(saved)}))


def _forget_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(line: str) -> float:
    """In MiB."""
    (size,) = re.findall(rf"^{line}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(size) / 1024


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    asyncio.run(call(sys.argv[1], Path(sys.argv[2])))
