"""The worker of this project's SDK that the official clients call. The first word of a message says what it does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from worker_sdk import Artifact, Message, NeedInput, Status, UserError, Worker

worker = Worker(sys.argv[1] if len(sys.argv) > 1 else "own", description="Does what the first word of a message says.")


@worker.on_message
async def answer(message: Message) -> AsyncIterator[str | Status | Artifact | NeedInput]:
    command, *words = message.text.split()
    if command == "count":
        yield Status("counting")
        for number in range(1, int(words[0]) + 1):
            yield f"{number} "
            await asyncio.sleep(float(words[1]) if len(words) > 1 else 0)
    elif command == "ask":
        reply = yield NeedInput("Which colour?")
        yield f"You said {reply.text}"
    elif command == "report":
        yield Artifact("figures", data={"answer": 42, "exact": 0.5, "name": "Käthe"})
        yield Artifact("picture.bin", raw=b"\x00\x01\xff", media_type="application/octet-stream")
    elif command == "wait":
        yield Status("waiting")
        await asyncio.sleep(60)
    elif command == "fail":
        raise UserError("It broke")


if __name__ == "__main__":
    worker.run()
