"""`rolecall send`: send a message to a role, print its answer as it arrives, and answer what it asks."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, cancel_on_interrupt, follow
from rolecall.cli.completion import complete_role
from rolecall.cli.connect import chosen_address, hub_options, problem, with_hub
from rolecall.cli.output import checked_role, print_json, print_notice
from rolecall.cli.talk.call_options import CallOptions, Json, call_options
from rolecall.cli.talk.files import file_at
from rolecall.cli.talk.lines import Lines
from rolecall.model.a2a import PAUSED

if TYPE_CHECKING:
    from worker_sdk import Budget, HubClient


class _Cost(click.ParamType["tuple[str, str]"]):
    """An amount, and a currency."""

    name = "cost"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        found = _COST.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not a cost such as 2 or 0.50EUR.", param, ctx)
        return found[1], (found[2] or "USD").upper()


_COST = re.compile(r"([0-9.]{1,20}) ?([A-Za-z]{3})?")


@click.command()
@click.argument("role", shell_complete=complete_role)
@click.argument("text", required=False)
@click.option(
    "--file",
    "paths",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Send this file too. Can be repeated.",
)
@click.option("--data", type=Json(), metavar="JSON", help="Send this as a data part.")
@call_options
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Save the files of the answer there.")
@click.option("--json", "as_json", is_flag=True, help="Print the finished task (or message) as JSON instead of its text.")
@click.option("--instance", metavar="NAME", help="Only this instance of the role; role:instance means the same.")
@click.option("--context-id", metavar="ID", help="Continue a conversation.")
@click.option("--task-id", metavar="ID", help="Answer a task that waits for input.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop waiting; the task continues."
)
@click.option("--budget", type=_Cost(), metavar="COST", help="What the task may cost with all that it starts: 2, 0.50EUR.")
@click.option("--budget-tokens", type=click.IntRange(min=1), metavar="N", help="How many tokens they may use.")
@click.option("--no-stream", is_flag=True, help="Print the answer when it is complete.")
@hub_options
def send(
    role: str,
    text: str | None,
    paths: Sequence[Path],
    data: Any,
    call: CallOptions,
    hub: str | None,
    token: str | None,
    **options: Any,
) -> None:
    """Send TEXT to a live worker of ROLE and print what it answers. TEXT `-` reads stdin; bytes that are no text go as a file.

    Text is printed as the worker sends it. On a terminal a question is answered with the next line. Ctrl-C cancels the task.
    If the hub restarts meanwhile, the command waits for it and continues the stream where it broke.
    """
    message = _message(text, paths, data)
    role, _, pinned = checked_role(role).partition(":")
    options["instance"] = options["instance"] or pinned or None
    options["budget"] = _budget(options["budget"], options.pop("budget_tokens"))
    if options["task_id"] is not None and call != call.of_answer:
        raise click.UsageError("--skill and --wait are for a message that begins a task, not for an answer with --task-id.")
    lines = Lines()
    with with_hub(chosen_address(hub, token)) as (client, runner):
        code, answer = runner.run(_send(client, role, message, call, **options))
        while answer.state in PAUSED and lines.interactive and not options["as_json"]:
            line = lines.next("answer> ")
            if line is None:
                break
            options |= {"task_id": answer.task_id, "context_id": None, "budget": None}
            code, answer = runner.run(_send(client, role, [line], call.of_answer, **options))
    click.get_current_context().exit(code)


def _budget(cost: tuple[str, str] | None, tokens: int | None) -> Budget | None:
    from worker_sdk import Budget

    amount, currency = cost or (None, "USD")
    if amount is None and tokens is None:
        return None
    try:
        return Budget(amount, currency, tokens)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error


def _message(text: str | None, paths: Sequence[Path], data: Any) -> list[Any]:
    from worker_sdk import File

    parts: list[str | File | dict[str, Any]] = []
    if text == "-":
        raw = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = None
            parts.append(File("stdin", "application/octet-stream", raw))
    if text is not None and text.strip():
        parts.insert(0, text)
    parts += [file_at(path) for path in paths]
    if data is not None:
        parts.append({"kind": "data", "data": data})
    if not parts:
        raise click.UsageError("There is nothing to send: TEXT is empty.")
    return parts


async def _send(
    hub: HubClient,
    role: str,
    message: list[Any],
    call: CallOptions,
    *,
    as_json: bool,
    output: Path | None,
    instance: str | None,
    context_id: str | None,
    task_id: str | None,
    timeout: float | None,
    budget: Budget | None,
    no_stream: bool,
) -> tuple[int, AnswerPrinter]:
    """The exit code, and the answer. Cancelled: the task is cancelled too."""
    answer = AnswerPrinter(role, quiet=as_json)
    known = (await hub.get_task(task_id)).raw if task_id and no_stream else None
    stream = hub.stream(
        role,
        message,
        skill=call.skill,
        instance=instance,
        context_id=context_id,
        task_id=task_id,
        metadata=call.whole_metadata,
        budget=budget,
        give_up_after=PATIENCE,
    )
    try:
        async with cancel_on_interrupt(hub, answer, stream), asyncio.timeout(timeout):
            await follow(hub, answer, stream, known=known, whole=no_stream)
    except TimeoutError:
        hint = f"the task continues: rolecall tasks follow {stream.task_id}" if stream.task_id else ""
        raise problem(f"the task did not end within {timeout:g} s", "TIMED_OUT", hint) from None
    if as_json:
        print_json(answer.message or (await hub.get_task(answer.task_id or "")).raw)
    code = await answer.close(hub, with_files=output is None)
    if output is not None and answer.task_id is not None:
        for path in await (await hub.get_task(answer.task_id)).save(output):
            print_notice(f"saved {path}")
    return code, answer
