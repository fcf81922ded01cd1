"""`rolecall send`: send a message to a role, and print its answer as it arrives."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, follow
from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import checked_role, print_json, print_notice

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.command()
@click.argument("role")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print the finished task (or message) as JSON instead of its text.")
@click.option("--instance", metavar="NAME", help="Only this instance of the role; role:instance means the same.")
@click.option("--context-id", metavar="ID", help="Continue a conversation.")
@click.option("--task-id", metavar="ID", help="Answer a task that waits for input.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop waiting; the task continues."
)
@click.option("--no-stream", is_flag=True, help="Print the answer when it is complete.")
@reaches_hub
async def send(
    hub: HubClient,
    role: str,
    text: str,
    as_json: bool,
    instance: str | None,
    context_id: str | None,
    task_id: str | None,
    timeout: float | None,
    no_stream: bool,
) -> int:
    """Send TEXT to a live worker of ROLE and print what it answers. TEXT `-` reads stdin.

    Text is printed as the worker sends it. Ctrl-C cancels the task. If the hub restarts meanwhile, the command waits for it
    and continues the stream where it broke.
    """
    text = sys.stdin.read() if text == "-" else text
    if not text.strip():
        raise click.UsageError("There is nothing to send: TEXT is empty.")
    role, _, pinned = checked_role(role).partition(":")
    instance = instance or pinned or None
    answer = AnswerPrinter(role, quiet=as_json)
    known = (await hub.get_task(task_id)).raw if task_id and no_stream else None
    stream = hub.stream_to_agent(role, text, instance=instance, context_id=context_id, task_id=task_id, give_up_after=PATIENCE)
    try:
        async with asyncio.timeout(timeout):
            await follow(hub, answer, stream, known=known, whole=no_stream)
    except TimeoutError:
        hint = f"the task continues: rolecall tasks follow {stream.task_id}" if stream.task_id else ""
        raise problem(f"the task did not end within {timeout:g} s", "TIMED_OUT", hint) from None
    except asyncio.CancelledError:
        if stream.task_id is not None and not answer.over:
            await _cancel(hub, stream.task_id)
        raise
    if as_json:
        print_json(answer.message or (await hub.get_task(answer.task_id or "")).raw)
    return await answer.close(hub)


async def _cancel(hub: HubClient, task_id: str) -> None:
    """After Ctrl-C nobody needs the answer."""
    from worker_sdk import RolecallError

    try:
        async with asyncio.timeout(3):
            await hub.cancel_task(task_id)
    except (RolecallError, TimeoutError):
        print_notice(f"\nthe task may continue: rolecall tasks cancel {task_id}")
    else:
        print_notice(f"\ncanceled {task_id}")
