"""`rolecall send`: a message to a role, and its answer as it comes."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, follow
from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import checked_role, say_json, talk

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.command()
@click.argument("role")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print the finished task (or message) as JSON instead of its text.")
@click.option("--instance", metavar="NAME", help="Only this instance of the role; role:instance says the same.")
@click.option("--context-id", metavar="ID", help="Go on with a conversation.")
@click.option("--task-id", metavar="ID", help="Answer a task that waits for input.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop waiting; the task goes on."
)
@click.option("--no-stream", is_flag=True, help="Ask with message/send, and print the answer when it is complete.")
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

    Text comes as the worker says it. Ctrl-C cancels the task. A hub that restarts meanwhile is waited for, and the
    stream goes on where it broke.
    """
    text = sys.stdin.read() if text == "-" else text
    if not text.strip():
        raise click.UsageError("There is nothing to send: TEXT is empty.")
    role, _, pinned = checked_role(role).partition(":")
    instance = instance or pinned or None
    answer = AnswerPrinter(role, quiet=as_json)
    try:
        async with asyncio.timeout(timeout):
            if no_stream:
                reply = await hub.send_to_agent(
                    role, text, instance=instance, context_id=context_id, task_id=task_id, timeout=None
                )
                answer.take(reply.raw)
            else:
                stream = hub.stream_to_agent(
                    role, text, instance=instance, context_id=context_id, task_id=task_id, give_up_after=PATIENCE
                )
                await follow(hub, answer, stream)
    except TimeoutError:
        hint = f"it goes on: rolecall tasks follow {answer.task_id}" if answer.task_id else ""
        raise problem(f"no end within {timeout:g} s", "TIMED_OUT", hint) from None
    except asyncio.CancelledError:
        await _cancel(hub, answer)
        raise
    if as_json:
        say_json(answer.message or (await hub.get_task(answer.task_id or "")).raw)
    return await answer.close(hub)


async def _cancel(hub: HubClient, answer: AnswerPrinter) -> None:
    """The person has left: the worker need not go on."""
    from worker_sdk import RolecallError

    if answer.task_id is None or answer.over:
        return
    try:
        async with asyncio.timeout(3):
            await hub.cancel_task(answer.task_id)
    except (RolecallError, TimeoutError):
        talk(f"\nleft; the task may go on: rolecall tasks cancel {answer.task_id}")
    else:
        talk(f"\ncanceled {answer.task_id}")
