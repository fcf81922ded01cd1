"""A task's answer as it comes: what is printed of each event, and coming back when the stream breaks."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import click

from hub.cli.connect import Frame, Hub, problem
from hub.cli.output import Problem, duration, harmless, on_terminal, paint, talk

TERMINAL = frozenset({"completed", "failed", "canceled", "rejected"})
PAUSED = frozenset({"input-required", "auth-required"})
# How long a lost hub is looked for, and how often.
PATIENCE = 30.0
PAUSE = 0.5


class Answer:
    """What is known of a task so far. Text goes to stdout at once, unless `quiet`."""

    def __init__(self, role: str = "", *, quiet: bool = False) -> None:
        self.role = role
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state = ""
        self.words = ""
        self.cursor: int | None = None
        self.message: dict[str, Any] | None = None
        self._quiet = quiet
        self._artifact: str | None = None
        self._at_line_start = True
        self._started = self._heard = time.monotonic()

    @property
    def over(self) -> bool:
        return self.message is not None or self.state in TERMINAL or self.state in PAUSED

    def take(self, frame: Frame, *, seen: bool = False) -> None:
        """`seen`: a Task that repeats what was printed before."""
        document = frame.document
        self._heard = time.monotonic()
        if frame.cursor is not None:
            self.cursor = frame.cursor
        kind = document.get("kind")
        if kind == "message":
            self.message = document
            self._print(text_of(document))
            return
        self.task_id = document.get("id" if kind == "task" else "taskId") or self.task_id
        self.context_id = document.get("contextId") or self.context_id
        if kind == "artifact-update":
            self._print_artifact(document.get("artifact") or {}, append=bool(document.get("append")))
        elif kind == "task":
            for artifact in [] if seen else document.get("artifacts") or []:
                self._print_artifact(artifact, append=False)
        if kind in ("task", "status-update"):
            self._take_status(
                document.get("status") or {}, seen=seen and self.state == (document.get("status") or {}).get("state")
            )

    def _take_status(self, status: dict[str, Any], *, seen: bool) -> None:
        self.state = str(status.get("state") or self.state)
        words = text_of(status.get("message") or {})
        if not words or seen:
            return
        if self.state in ("completed", *PAUSED):
            self._start_line()
            self._print(words)
        elif self.state in TERMINAL:
            self.words = words
        elif on_terminal(sys.stderr) and not self._quiet:
            self._start_line()
            talk(words, "dim")

    def _print_artifact(self, artifact: dict[str, Any], *, append: bool) -> None:
        name = str(artifact.get("artifactId"))
        if self._artifact is not None and (name != self._artifact or not append):
            self._start_line()
        self._artifact = name
        self._print(text_of(artifact))

    def _print(self, text: str) -> None:
        if self._quiet or not text:
            return
        click.echo(harmless(text) if on_terminal(sys.stdout) else text, nl=False)
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n")

    def _start_line(self) -> None:
        if not self._at_line_start and not self._quiet:
            click.echo()
            self._at_line_start = True

    async def close(self, hub: Hub) -> int:
        """The last line, and the exit code that the answer comes to."""
        self._start_line()
        state = self.state or "completed"
        who = await self._worker(hub) or self.role
        took = duration(self._heard - self._started)
        good = state == "completed"
        mark = "✓" if good else "?" if state in PAUSED else "✗"
        line = " · ".join(part for part in (f"{mark} {state}", who, took) if part)
        click.echo(paint(harmless(line), "green" if good else "yellow" if state in PAUSED else "red", sys.stderr), err=True)
        if state in PAUSED:
            talk(f'  answer it: rolecall send {self.role or "ROLE"} "…" --task-id {self.task_id}')
            return 7
        if self.words:
            talk(f"  {self.words}")
        return 0 if good else 1

    async def _worker(self, hub: Hub) -> str | None:
        """Who answered. A hub that was restarted has forgotten its reasons, but not the worker."""
        if self.task_id is None:
            return None
        try:
            page = await hub.get("/tasks", context_id=self.context_id, limit=100)
        except Problem:
            return None
        return next((task["worker"] for task in page.get("tasks") or [] if task.get("id") == self.task_id), None)


async def follow(hub: Hub, answer: Answer, frames: AsyncIterator[Frame], *, seen: bool = False) -> None:
    """Read until the answer is over. A lost stream is taken up where it broke, for as long as PATIENCE lasts."""
    patience = time.monotonic() + PATIENCE
    while True:
        try:
            async for frame in frames:
                answer.take(frame, seen=seen and frame.document.get("kind") == "task")
                patience = time.monotonic() + PATIENCE
                if answer.over:
                    return
        except Problem as error:
            lost = error.reason == "STREAM_LOST"
            if not lost and (answer.task_id is None or error.reason not in ("HUB_UNREACHABLE", "HUB_DRAINING")):
                raise
        if answer.over:
            return
        if answer.task_id is None:
            raise problem(
                "the stream broke before the hub named a task", "STREAM_LOST", "it may have run: see rolecall tasks ls"
            )
        if time.monotonic() > patience:
            hint = f"take it up again: rolecall tasks follow {answer.task_id} --after {answer.cursor or 0}"
            raise problem(f"lost the hub at {hub.url}", "STREAM_LOST", hint)
        await asyncio.sleep(PAUSE)
        frames, seen = hub.stream("tasks/resubscribe", {"id": answer.task_id}, after=answer.cursor), True


def text_of(holder: dict[str, Any]) -> str:
    """The parts of a message or artifact as text: data as JSON, files by name."""
    return "".join(_part(part) for part in holder.get("parts") or [] if isinstance(part, dict))


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if part.get("kind") == "data":
        return json.dumps(part.get("data"), ensure_ascii=False, indent=2) + "\n"
    file = part.get("file")
    if isinstance(file, dict):
        return f"[file {file.get('name') or 'without a name'}{': ' + str(file['uri']) if file.get('uri') else ''}]\n"
    return ""
