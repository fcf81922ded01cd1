"""Print a task's answer as it arrives, and its last line."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.connect import problem
from rolecall.cli.output import duration, is_terminal, paint, print_notice, strip_control, took
from rolecall.cli.progress import ProgressLine
from rolecall.model.a2a import PAUSED, TERMINAL, JsonObject, TaskState

if TYPE_CHECKING:
    from worker_sdk import HubClient
    from worker_sdk.calling.stream import HubStream

_STATUSES_KEPT = 1_000
PATIENCE = 30.0
"""How many seconds to try to reconnect to a lost hub."""
AWAY_AFTER = 2.0
"""Seconds without a hub before people are told that it is waited for."""
_CANCEL_PATIENCE = 3.0
_POLL = 0.2


class AnswerPrinter:
    """The state of a task so far. Text is printed to stdout at once, unless `quiet`."""

    def __init__(self, role: str = "", *, task_id: str | None = None, quiet: bool = False) -> None:
        self.role = role
        self.task_id = task_id
        self.context_id: str | None = None
        self.state = ""
        self.failure = ""
        self.message: dict[str, Any] | None = None
        self.has_files = False
        self._quiet = quiet
        self._artifact: str | None = None
        self._texts: dict[str, str] = {}
        """What has been printed of each artifact."""
        self._progress = ProgressLine(quiet=quiet)
        self._statuses: list[str] = []
        """Texts of statuses, for an answer that has no others."""
        self._printed = False
        self._at_line_start = True
        self._started = self._last_event = time.monotonic()

    @property
    def has_results(self) -> bool:
        return self._artifact is not None

    @property
    def over(self) -> bool:
        return self.message is not None or self.state in TERMINAL or self.state in PAUSED

    def take(self, document: dict[str, Any], known: dict[str, Any] | None = None) -> None:
        """One more event, or a whole answer. `known`: what was printed of this task before."""
        self._last_event = time.monotonic()
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
            self._take_task(document, known)
        elif kind == "status-update":
            self._take_status(document.get("status") or {})

    def _take_task(self, task: dict[str, Any], known: dict[str, Any] | None) -> None:
        from worker_sdk.calling.reply import new_in

        shown = task if known is None else new_in(task, known)
        for artifact in shown.get("artifacts") or []:
            self._print_artifact(artifact, append=False)
        # A task that is followed from where it rests shows why.
        self._take_status((task if known is task and _rests(task) else shown).get("status") or {})

    def _take_status(self, status: dict[str, Any]) -> None:
        self.state = str(status.get("state") or self.state)
        text = text_of(status.get("message") or {})
        if not text:
            return
        if self.state in (TaskState.COMPLETED, *PAUSED):
            self.start_line()
            self._print(text)
        elif self.state in TERMINAL:
            self.failure = text
        else:
            self._statuses = [*self._statuses[-_STATUSES_KEPT:], text]
            if is_terminal(sys.stderr) and not self._quiet:
                self.start_line()
                if not self._progress.show(status["message"], text):
                    print_notice(text, "dim")

    def _print_artifact(self, artifact: dict[str, Any], *, append: bool) -> None:
        name, text = str(artifact.get("artifactId")), text_of(artifact)
        self.has_files = self.has_files or any("file" in part for part in artifact.get("parts") or ())
        printed = self._texts.get(name, "")
        if not append and printed and text.startswith(printed) and self._artifact == name:
            text, append = text[len(printed) :], True  # it replaces what is there by more of the same
        if self._artifact is not None and (name != self._artifact or not append):
            self.start_line()
        self._artifact = name
        self._texts[name] = printed + text if append else text
        self._print(text)

    def _print(self, text: str) -> None:
        if self._quiet or not text:
            return
        self._progress.clear()
        click.echo(strip_control(text) if is_terminal(sys.stdout) else text, nl=False)
        sys.stdout.flush()
        self._printed = True
        self._at_line_start = text.endswith("\n")

    def start_line(self) -> None:
        self._progress.clear()
        if not self._at_line_start and not self._quiet:
            click.echo()
            self._at_line_start = True

    def notice(self, text: str) -> None:
        """For people, in a line of its own."""
        self._progress.clear()
        if is_terminal(sys.stdout):
            self.start_line()
        print_notice(text, "dim")

    @property
    def verdict(self) -> str:
        """How a task that did not succeed has ended. Empty: it has not, or it has succeeded."""
        bad = self.state in TERMINAL and self.state != TaskState.COMPLETED
        return (f"✗ {self.state}" + (f": {self.failure}" if self.failure else "")) if bad else ""

    async def close(self, hub: HubClient, *, with_files: bool = True) -> int:
        """Print the last line. The exit code of the answer. `with_files`: say how its files are saved."""
        state = self.state or TaskState.COMPLETED
        if state == TaskState.COMPLETED and not self._printed and not (is_terminal(sys.stdout) and is_terminal(sys.stderr)):
            self._print("\n".join(self._statuses))  # nobody has seen them, and there is no other answer
        self.start_line()
        row = await self._row(hub)
        worker = row.get("worker") or self.role
        time_taken = took(row) or duration(self._last_event - self._started)
        good = state == TaskState.COMPLETED
        mark = "✓" if good else "?" if state in PAUSED else "✗"
        line = " · ".join(part for part in (f"{mark} {state}", worker, time_taken) if part)
        click.echo(
            paint(strip_control(line), "green" if good else "yellow" if state in PAUSED else "red", sys.stderr), err=True
        )
        if self.failure:
            print_notice(f"  {self.failure}")
        if self.has_files and self.task_id is not None and with_files:
            print_notice(f"  save its files: rolecall tasks save {self.task_id} DIR")
        if state in PAUSED:
            print_notice(how_to_answer(self.role, self.task_id))
            return 7
        return 0 if good else 1

    async def _row(self, hub: HubClient) -> JsonObject:
        """The worker that answered and the times of the task: it may be older than this command. Empty: the hub cannot tell."""
        from worker_sdk import RolecallError

        if self.task_id is None:
            return {}
        try:
            page = await hub.tasks(context_id=self.context_id, limit=100)
        except RolecallError:
            return {}
        return next((task for task in page.get("tasks") or [] if task.get("id") == self.task_id), {})


async def follow(
    hub: HubClient,
    answer: AnswerPrinter,
    stream: HubStream,
    *,
    whole: bool = False,
    known: dict[str, Any] | None = None,
) -> None:
    """Read until the answer is over. A broken stream reconnects by itself; a lost one is a CommandError. `whole`: take it at
    its end, and of its task what is not `known`.
    """
    from worker_sdk import StreamLost

    try:
        async with stream, _hub_watched(hub, answer, stream) as look:
            if whole:
                reply = await stream.reply()
                look()
                answer.take(reply.raw, known)
                return
            async for event in stream:
                look()
                answer.take(event.raw, event.known)
    except StreamLost as error:
        if stream.task_id is None:
            hint = "it may have run: see rolecall tasks ls"
            raise problem("the stream broke before the hub named a task", "STREAM_LOST", hint) from error
        after = f" --after {stream.cursor}" if stream.cursor else ""
        hint = f"continue: rolecall tasks follow {stream.task_id}{after}"
        raise problem(f"lost the hub at {hub.url}", "STREAM_LOST", hint) from error


@asynccontextmanager
async def _hub_watched(hub: HubClient, answer: AnswerPrinter, stream: HubStream) -> AsyncIterator[Callable[[], None]]:
    """Say that the command waits for the hub, once, and when it is back. What is given looks whether it is."""
    loop, away = asyncio.get_running_loop(), False

    def look() -> None:
        nonlocal away
        since = stream.lost_since
        if away and since is None:
            away = False
            answer.notice("the hub is back")
        elif not away and since is not None and loop.time() - since >= AWAY_AFTER:
            away = True
            answer.notice(f"waiting for the hub at {hub.url}")

    async def watch() -> None:
        while True:
            look()
            await asyncio.sleep(_POLL)

    job = asyncio.create_task(watch(), name="watch of the hub")
    try:
        yield look
    finally:
        job.cancel()


@asynccontextmanager
async def cancel_on_interrupt(hub: HubClient, answer: AnswerPrinter, stream: HubStream) -> AsyncIterator[None]:
    """After Ctrl-C nobody needs the answer: the task is cancelled too."""
    from worker_sdk import RolecallError

    try:
        yield
    except asyncio.CancelledError:
        if stream.task_id is not None and not answer.over:
            try:
                async with asyncio.timeout(_CANCEL_PATIENCE):
                    await _cancel(hub, stream.task_id)
            except (RolecallError, TimeoutError):
                print_notice(f"\nthe task may go on: rolecall tasks cancel {stream.task_id}")
            else:
                print_notice(f"\ncanceled {stream.task_id}", "yellow")
        raise


async def _cancel(hub: HubClient, task_id: str) -> None:
    """It waits for a hub that restarts."""
    from worker_sdk import HubBusy, HubUnreachable

    while True:
        try:
            await hub.cancel_task(task_id)
        except (HubBusy, HubUnreachable):
            await asyncio.sleep(_POLL)
        else:
            return


def how_to_answer(role: str, task_id: str | None) -> str:
    return f'  answer it: rolecall send {role or "ROLE"} "…" --task-id {task_id}'


def _rests(task: dict[str, Any]) -> bool:
    state = (task.get("status") or {}).get("state")
    return state in TERMINAL or state in PAUSED


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
