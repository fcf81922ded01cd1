"""A worker of long tasks, which can repeat a whole task in few bytes: `python -m tests.acceptance.long_worker PORT`.

The text of a message says what its task consists of, in this order: `16000 statuses 2 tasks`. The kinds are `statuses`,
`reports`, `chunks` and `tasks`. Events come as fast as the hub takes them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.helpers.cards import plain_card
from tests.helpers.raw_server import LAST_CHUNK, Peer, answer, chunk, chunked_head, frame

CARD = plain_card("long", "Writes long tasks.")
_NUMBERS = itertools.count(1)
_AT_ONCE = 2000
"""Events of one write."""
_PARTS = {"statuses": 1, "reports": 6}
"""Parts of a status message. A report costs as much to fold as several short ones, and little more to pass on."""


def events(task: str, text: str) -> Iterator[dict[str, Any]]:
    """The task, what the text says, and the end."""
    of = {"taskId": task, "contextId": "c"}
    yield {"kind": "task", "id": task, "contextId": "c", "status": {"state": "working"}}
    words = text.split()
    for count, kind in zip(words[::2], words[1::2], strict=True):
        for number in range(int(count)):
            if kind in _PARTS:
                message = {
                    "kind": "message",
                    "role": "agent",
                    "messageId": f"m{number}",
                    "parts": [_text(number)] * _PARTS[kind],
                }
                yield {"kind": "status-update", **of, "status": {"state": "working", "message": message}, "final": False}
            elif kind == "tasks":
                yield {"kind": "task", "id": task, "contextId": "c", "status": {"state": "working"}}
            else:
                artifact = {"artifactId": "a", "parts": [_text(number)]}
                yield {"kind": "artifact-update", **of, "artifact": artifact, "append": number > 0}
    yield {"kind": "status-update", **of, "status": {"state": "completed"}, "final": True}


def _text(number: int) -> dict[str, str]:
    return {"kind": "text", "text": f"{number} "}


async def script(peer: Peer) -> None:
    while request := await peer.read_request():
        if request.line.startswith("GET"):
            await peer.write(answer(json.dumps(CARD).encode()))
            continue
        called = json.loads(request.body)
        if called["method"] == "message/stream":
            await _stream(peer, called["id"], called["params"]["message"]["parts"][0]["text"])
        else:
            unknown = {"jsonrpc": "2.0", "id": called["id"], "error": {"code": -32001, "message": "Task not found"}}
            await peer.write(answer(json.dumps(unknown).encode()))


async def _stream(peer: Peer, id: Any, text: str) -> None:
    await peer.write(chunked_head())
    source = events(f"long-{next(_NUMBERS)}", text)
    while some := list(itertools.islice(source, _AT_ONCE)):
        answers = [{"jsonrpc": "2.0", "id": id, "result": event} for event in some]
        await peer.write(chunk(b"".join(frame(json.dumps(one).encode()) for one in answers)))
    await peer.write(LAST_CHUNK)


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await script(Peer(0, reader, writer))
    writer.close()


async def main(port: int) -> None:
    async with await asyncio.start_server(_connected, "127.0.0.1", port, limit=2**20) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
