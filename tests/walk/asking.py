"""The hub's process, its worker's enrolment, and the questions that its process answers."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests.helpers.cards import plain_card
from tests.helpers.processes import ROOT, environment
from tests.helpers.waiting import until

PATIENCE = 10.0
_LOOK = 0.002
_CARD = plain_card("echo", "Returns the text of the message.")


def streaming_call() -> bytes:
    """The request of one message/stream call."""
    message = {"kind": "message", "role": "user", "messageId": str(uuid4()), "parts": [{"kind": "text", "text": "hello"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}}).encode()
    about = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST /agents/echo/ HTTP/1.1\r\n{about}\r\n".encode() + body


async def ask(hub: Process, words: str) -> Any:
    assert hub.stdin is not None
    assert hub.stdout is not None
    hub.stdin.write(f"{words}\n".encode())
    async with asyncio.timeout(PATIENCE):
        line = await hub.stdout.readline()
    return json.loads(line)


async def until_idle(hub: Process) -> None:
    """Until the hub has processed what it received: no thread of it runs, and none has run between two looks."""
    threads, before = _threads(hub.pid), list[str]()
    async with asyncio.timeout(PATIENCE):
        while threads != before or not all("State:\tS" in thread for thread in threads):
            await asyncio.sleep(_LOOK)
            threads, before = _threads(hub.pid), threads


def _threads(pid: int) -> list[str]:
    """Of each thread: its state, and how often it has stopped to run."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [" ".join(line for line in text.splitlines() if line.startswith("State") or "ctxt" in line) for text in texts]


@asynccontextmanager
async def open_hub(folder: Path, port: int, loop: str) -> AsyncIterator[Process]:
    """A hub with defaults, which can be asked what tests/walk/hub.py answers."""
    words = ("serve", "--port", str(port), "--data-dir", str(folder), "--loop", loop, "--log-level", "warning")
    # There are no heartbeats.
    env = environment({"ROLECALL_LEASE_TTL": "7200", "ROLECALL_HEARTBEAT": "3600"})
    argv = (sys.executable, "-m", "tests.walk.hub", *words)
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=2**24
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()  # its data is not needed
        await process.wait()


async def enrol(port: int, url: str) -> None:
    offer = {"url": url, "boot": "walk", "card": _CARD}
    async with httpx.AsyncClient(trust_env=False) as client:

        async def enrolled() -> bool:
            try:
                answer = await client.put(f"http://127.0.0.1:{port}/registry/agents/echo/walk", json=offer)
            except httpx.TransportError:
                return False
            answer.raise_for_status()
            return True

        await until(enrolled, PATIENCE)
