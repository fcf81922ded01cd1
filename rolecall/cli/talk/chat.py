"""`rolecall chat`: a conversation with a role, line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, cancel_on_interrupt, follow, how_to_answer, text_of
from rolecall.cli.completion import complete_role
from rolecall.cli.connect import chosen_address, hub_options, with_hub
from rolecall.cli.output import CommandError, checked_role, paint, print_error, print_notice, strip_control
from rolecall.cli.talk.call_options import CallOptions, call_options
from rolecall.cli.talk.files import file_at
from rolecall.cli.talk.lines import Lines
from rolecall.cli.tasks.results import save_results
from rolecall.cli.tasks.table import print_tasks
from rolecall.model.a2a import PAUSED, JsonObject

if TYPE_CHECKING:
    from worker_sdk import File, HubClient

_T = TypeVar("_T")
_SHOWN = 5
"""Earlier tasks of a conversation that is taken up again."""
_HELP = """\
/file PATH   send a file with the next message
/save [DIR]  save the files and artifacts of the last answer, here or in DIR
/tasks       the tasks of this conversation
/cancel      cancel the task that asks something
/quit        leave (so does Ctrl-D); the conversation can be taken up again
//…          a message that begins with a slash
Ctrl-C       cancel the answer that is being given"""


@click.command()
@click.argument("role", shell_complete=complete_role)
@click.option("--context-id", metavar="ID", help="Take up an earlier conversation.")
@click.option("--instance", metavar="NAME", help="Only this instance of the role; role:instance means the same.")
@call_options
@hub_options
def chat(
    role: str, context_id: str | None, instance: str | None, call: CallOptions, hub: str | None, token: str | None
) -> None:
    """Talk to ROLE, line by line. Answers stream, a question is answered with the next line. `/help` lists what else there is.

    The conversation keeps its context, so the same worker has it. Without a terminal each line of stdin is a message.
    """
    role, _, pinned = checked_role(role).partition(":")
    with with_hub(chosen_address(hub, token)) as (client, runner):
        code = Conversation(client, runner, role, instance or pinned or None, context_id, call).run(Lines())
    click.get_current_context().exit(code)


class Conversation:
    """Waits for lines in the main thread, as a terminal needs it, and runs the loop while something is asked of the hub."""

    def __init__(
        self,
        hub: HubClient,
        runner: asyncio.Runner,
        role: str,
        instance: str | None,
        context_id: str | None,
        call: CallOptions,
    ) -> None:
        self._hub = hub
        self._runner = runner
        self._role = role
        self._instance = instance
        self._context_id = context_id
        self._call = call
        self._last: str | None = None
        """The task that gave results last."""
        self._asked: str | None = None
        """The task that waits for the next line."""
        self._files: list[File] = []
        self._failed = False

    def run(self, lines: Lines) -> int:
        """Until the end of the input. If nobody was there to see it, 1: the last message failed; 7: it is asked something."""
        if self._context_id is not None:
            self._do(self._take_up())
        elif lines.interactive:
            print_notice(f"{self._role} · /help lists what else there is, Ctrl-D ends", "dim")
        while (line := lines.next("answer> " if self._asked else "you> ")) is not None:
            if line.strip() == "/quit":
                break
            self._take(line)
        if lines.interactive and self._context_id is not None:
            skill = f" --skill {quote(self._call.skill)}" if self._call.skill is not None else ""
            print_notice(f"take it up again: rolecall chat {self._role}{skill} --context-id {self._context_id}", "dim")
        if lines.interactive:
            return 0
        if self._asked is not None:
            print_notice(how_to_answer(self._role, self._asked))
            return 7
        return 1 if self._failed else 0

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        word, _, rest = line.strip().partition(" ")
        if word == "/help":
            print_notice(_HELP)
        elif word == "/file":
            self._add_file(Path(rest.strip()).expanduser())
        elif word == "/save":
            self._do(self._save(Path(rest.strip() or ".").expanduser()))
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
        call = self._call if task_id is None else self._call.of_answer
        stream = self._hub.stream(
            self._role,
            message,
            skill=call.skill,
            instance=self._instance,
            context_id=self._context_id,
            task_id=task_id,
            metadata=call.whole_metadata,
            give_up_after=PATIENCE,
        )
        answer = AnswerPrinter(self._role, task_id=task_id)
        try:
            async with cancel_on_interrupt(self._hub, answer, stream):
                await follow(self._hub, answer, stream)
        finally:
            self._context_id = answer.context_id or self._context_id
        self._end(answer)
        if answer.has_files:
            print_notice("/save saves the files", "dim")
        if answer.state in PAUSED:
            self._asked = answer.task_id

    def _end(self, answer: AnswerPrinter) -> None:
        answer.start_line()
        self._last = answer.task_id if answer.has_results else self._last
        self._failed = bool(answer.verdict)
        if self._failed:
            print_notice(answer.verdict, "red")

    async def _cancel(self) -> None:
        task_id, self._asked = self._asked, None
        if task_id is None:
            print_notice("No task asks anything. Ctrl-C cancels an answer while it is given.")
            return
        await self._hub.cancel_task(task_id)
        print_notice("canceled", "yellow")

    async def _save(self, folder: Path) -> None:
        if self._last is None:
            print_notice("There is nothing to save yet.")
            return
        await save_results(self._hub, self._last, folder)

    async def _show_tasks(self) -> None:
        if self._context_id is None:
            print_notice("There are none yet.")
            return
        found = (await self._hub.tasks(context_id=self._context_id, limit=100))["tasks"]
        print_tasks(found)

    async def _take_up(self) -> None:
        """Show the end of an earlier conversation as it was; what it asked last can be answered."""
        found = (await self._hub.tasks(context_id=self._context_id, role=self._role, limit=_SHOWN))["tasks"]
        if not found:
            print_notice(f"No task of {self._role} has this context id: a new conversation begins under it.")
        for row in sorted(found, key=lambda row: str(row["created"])):
            await self._show_again(row)
        self._failed = False
        if found and found[0]["state"] in PAUSED:
            self._asked = found[0]["id"]

    async def _show_again(self, row: JsonObject) -> None:
        """A task as it is by now: its log, and behind each of its questions what was answered."""
        history = (await self._hub.get_task(row["id"])).raw.get("history") or []
        turns = iter([message for message in history if message.get("role") == "user"])
        answer, upto = AnswerPrinter(self._role, task_id=row["id"]), int(row["events"])
        _print_turn(turns)
        shown = 0
        while shown < upto:
            # From its first event on; further from each question, at which a stream ends.
            async with self._hub.follow_task(row["id"], after=str(shown or 1), give_up_after=PATIENCE) as stream:
                async for event in stream:
                    if shown == 0 or event.known is None:
                        answer.take(event.raw)
                    shown = int(event.cursor or upto)
                    if shown >= upto:
                        break
            if shown < upto:
                answer.start_line()
                _print_turn(turns)
        self._end(answer)
        if not answer.over:
            print_notice(f"it is {row['state']}: rolecall tasks follow {row['id']}", "dim")


def _print_turn(turns: Iterator[JsonObject]) -> None:
    """The next one. There may be none: others have answered, or the answer was no message."""
    for message in islice(turns, 1):
        click.echo(paint("you> ", "dim", sys.stdout) + strip_control(text_of(message)).rstrip())
