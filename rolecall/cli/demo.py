"""The demo workers of `rolecall dev`: one answers, one streams slowly, one asks a question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from worker_sdk import Message, NeedInput, Reject, Status, Worker

echo = Worker("echo", description="Says what you say.")
storyteller = Worker("storyteller", description="Tells a short story about anything, word by word.")
booking = Worker("booking", description="Books a table, and asks before it does.")

_STORY = """Once there was {subject} that nobody had asked about for years.
One evening somebody did. The question went to a hub, and the hub knew who was awake.
So the story was told, one word at a time, and whoever left in the middle could come back and miss nothing.
The end.
"""
_PAUSE = 0.08


@echo.on_message
async def repeat(text: str) -> str:
    return text


@storyteller.on_message
async def stream_story(text: str) -> AsyncGenerator[str | Status, None]:
    yield Status("thinking of something")
    story = _STORY.format(subject=text.strip()[:80] or "a thing")
    for word in story.split(" "):
        yield word if word.endswith("\n") else word + " "
        await asyncio.sleep(_PAUSE)


@booking.on_message
async def book(text: str) -> AsyncGenerator[str | NeedInput, Message]:
    reply = yield NeedInput(f"A table for “{text.strip()[:80]}”. Shall I book it? (yes/no)")
    if reply.text.strip().lower() not in ("yes", "y"):
        raise Reject("Nothing was booked.")
    yield f"Booked: {text.strip()[:80]}."
