"""The worker of this project's SDK that the official clients call. The first word of a message is the command."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from worker_sdk import Artifact, Message, NeedInput, Reject, Status, Task, UserError, Worker

worker = Worker(sys.argv[1] if len(sys.argv) > 1 else "own", description="Does what the first word of a message says.")


@worker.on_message
async def answer(message: Message, task: Task) -> AsyncIterator[str | Status | Artifact | NeedInput]:
    command, *words = message.text.split()
    if command == "count":
        yield Status("counting")
        for number in range(1, int(words[0]) + 1):
            yield f"{number} "
            await wait(*words[1:])
    elif command == "ask":
        reply = yield NeedInput("Which colour?")
        yield f"You said {reply.text}"
    elif command == "use":
        task.usage(model="small", input_tokens=1200, output_tokens=80, cost="0.5")
        await asyncio.sleep(0.05)
        yield "done"
    elif command == "report":
        yield Artifact("figures", data={"answer": 42, "exact": 0.5, "name": "Käthe"})
        yield Artifact("picture.bin", raw=b"\x00\x01\xff", media_type="application/octet-stream")
    elif command == "title":
        yield Artifact("title", text="# Title", media_type="text/markdown")
    elif command == "wait":
        yield Status("waiting")
        await asyncio.sleep(60)
    elif command == "echo":
        for part in message.parts:
            yield same(part)
    elif command == "fail":
        raise UserError("It broke")
    elif command == "reject":
        raise Reject("Not mine")


def is_there(file: str) -> bool:
    return Path(file).exists()


async def wait(pause: str = "0") -> None:
    """Wait that many seconds, or until the file of that name exists."""
    if not pause.startswith("/"):
        await asyncio.sleep(float(pause))
        return
    while not is_there(pause):  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.01)


def same(part: dict[str, Any]) -> Artifact:
    """An artifact of this part."""
    if "file" not in part:
        return Artifact("echo", text=part.get("text"), data=part.get("data"))
    file = part["file"]
    raw = base64.b64decode(file["bytes"]) if "bytes" in file else None
    return Artifact(file["name"], raw=raw, url=file.get("uri"), media_type=file["mimeType"])


if __name__ == "__main__":
    worker.run()
