"""`rolecall chat`: a conversation with a role, line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, cancel_on_interrupt, follow, text_of
from rolecall.cli.completion import complete_role
from rolecall.cli.connect import chosen_address, hub_options, with_hub
from rolecall.cli.output import CommandError, checked_role, paint, print_error, print_notice, strip_control
from rolecall.cli.talk.files import file_at
from rolecall.cli.talk.lines import Lines
from rolecall.cli.tasks.table import print_tasks
from rolecall.model.a2a import PAUSED, JsonObject, TaskState

if TYPE_CHECKING:
    from worker_sdk import File, HubClient

_T = TypeVar("_T")
_SHOWN = 5
"""Earlier tasks of a conversation that is taken up again."""
_HELP = """\
/file PATH   send a file with the next message
/tasks       the tasks of this conversation
/cancel      cancel the task that asks something
/quit        leave (so does Ctrl-D); the conversation can be taken up again
//…          a message that begins with a slash
Ctrl-C       cancel the answer that is being given"""


@click.command()
@click.argument("role", shell_complete=complete_role)
@click.option("--context-id", metavar="ID", help="Take up an earlier conversation.")
@click.option("--instance", metavar="NAME", help="Only this instance of the role; role:instance means the same.")
@hub_options
def chat(role: str, context_id: str | None, instance: str | None, hub: str | None, token: str | None) -> None:
    """Talk to ROLE, line by line. Answers stream, a question is answered with the next line. `/help` lists what else there is.

    The conversation keeps its context, so the same worker has it. Without a terminal each line of stdin is a message.
    """
    role, _, pinned = checked_role(role).partition(":")
    with with_hub(chosen_address(hub, token)) as (client, runner):
        code = Conversation(client, runner, role, instance or pinned or None, context_id).run(Lines())
    click.get_current_context().exit(code)


class Conversation:
    """Waits for lines in the main thread, as a terminal needs it, and runs the loop while something is asked of the hub."""

    def __init__(self, hub: HubClient, runner: asyncio.Runner, role: str, instance: str | None, context_id: str | None) -> None:
        self._hub = hub
        self._runner = runner
        self._role = role
        self._instance = instance
        self._context_id = context_id
        self._asked: str | None = None
        """The task that waits for the next line."""
        self._files: list[File] = []
        self._failed = False

    def run(self, lines: Lines) -> int:
        """Until the end of the input. 1: the last message failed, and nobody was there to see it."""
        if self._context_id is not None:
            self._do(self._take_up())
        elif lines.interactive:
            print_notice(f"{self._role} · /help lists what else there is, Ctrl-D ends", "dim")
        while (line := lines.next("answer> " if self._asked else "you> ")) is not None:
            if line.strip() == "/quit":
                break
            self._take(line)
        if lines.interactive and self._context_id is not None:
            print_notice(f"take it up again: rolecall chat {self._role} --context-id {self._context_id}", "dim")
        return 1 if self._failed and not lines.interactive else 0

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        word, _, rest = line.strip().partition(" ")
        if word == "/help":
            print_notice(_HELP)
        elif word == "/file":
            self._add_file(Path(rest.strip()).expanduser())
        elif word == "/tasks":
            self._do(self._show_tasks())
        elif word == "/cancel":
            self._do(self._cancel())
        elif word.startswith("/") and not word.startswith("//"):
            print_notice(f"There is no {word}. /help lists what there is; a message that begins with a slash has two.")
        else:
            self._do(self._say(line.removeprefix("/") if line.startswith("//") else line))

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Run it. An error of the hub does not end the conversation, and neither does Ctrl-C."""
        from rolecall.cli import explained

        try:
            return self._runner.run(work)
        except KeyboardInterrupt:
            click.echo(err=True)
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:  # noqa: BLE001  the edge of one line: people get it in words and go on
            self._failed = True
            print_error(explained(error))
        return None

    def _add_file(self, path: Path) -> None:
        try:
            self._files.append(file_at(path))
        except CommandError as error:
            print_error(error)
        else:
            print_notice(f"{path.name} goes with the next message", "dim")

    # --- what is asked of the hub

    async def _say(self, text: str) -> None:
        message: list[str | File] = [text, *self._files]
        self._files = []
        task_id, self._asked = self._asked, None
        stream = self._hub.stream(
            self._role,
            message,
            instance=self._instance,
            context_id=self._context_id,
            task_id=task_id,
            give_up_after=PATIENCE,
        )
        answer = AnswerPrinter(self._role, task_id=task_id)
        try:
            async with cancel_on_interrupt(self._hub, answer, stream):
                await follow(self._hub, answer, stream)
        finally:
            self._context_id = answer.context_id or self._context_id
        answer.start_line()
        self._failed = answer.state not in ("", TaskState.COMPLETED, *PAUSED)
        if answer.state in PAUSED:
            self._asked = answer.task_id
        elif self._failed:
            print_notice(f"✗ {answer.state}" + (f": {answer.failure}" if answer.failure else ""), "red")

    async def _cancel(self) -> None:
        task_id, self._asked = self._asked, None
        if task_id is None:
            print_notice("No task asks anything. Ctrl-C cancels an answer while it is given.")
            return
        await self._hub.cancel_task(task_id)
        print_notice("canceled", "yellow")

    async def _show_tasks(self) -> None:
        if self._context_id is None:
            print_notice("There are none yet.")
            return
        found = (await self._hub.tasks(context_id=self._context_id, limit=100))["tasks"]
        print_tasks(found)

    async def _take_up(self) -> None:
        """Show the end of an earlier conversation; what it asked last can be answered."""
        found = (await self._hub.tasks(context_id=self._context_id, role=self._role, limit=_SHOWN))["tasks"]
        if not found:
            print_notice(f"No task of {self._role} has this context id: a new conversation begins under it.")
        for row in reversed(found):
            task = (await self._hub.get_task(row["id"])).raw
            for line in _lines_of(task):
                click.echo(line)
        if found and found[0]["state"] in PAUSED:
            self._asked = found[0]["id"]


def _lines_of(task: JsonObject) -> list[str]:
    """The lines of a task: the caller's messages and the questions, and then what came out."""
    lines = []
    for message in task.get("history") or []:
        mark = paint("you> ", "dim", sys.stdout) if message.get("role") == "user" else ""
        lines.append(mark + strip_control(text_of(message)).rstrip())
    lines += [strip_control(text_of(artifact)).rstrip() for artifact in task.get("artifacts") or []]
    status = task.get("status") or {}
    if status.get("state") in PAUSED or not task.get("artifacts"):
        lines.append(strip_control(text_of(status.get("message") or {})).rstrip())
    return [line for line in lines if line]
