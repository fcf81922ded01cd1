"""`rolecall send`: a message to a role, and its answer as it comes."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import uuid4

import click

from hub.cli.answer import Answer, follow
from hub.cli.connect import Frame, Hub, problem, reaches_hub
from hub.cli.output import Problem, say_json, talk


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
    hub: Hub,
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
    role, _, pinned = role.partition(":")
    params = _params(text, role, instance or pinned, context_id, task_id)
    answer = Answer(role, quiet=as_json)
    try:
        async with asyncio.timeout(timeout):
            await _ask(hub, answer, params, no_stream)
    except TimeoutError:
        hint = f"it goes on: rolecall tasks follow {answer.task_id}" if answer.task_id else ""
        raise problem(f"no end within {timeout:g} s", "TIMED_OUT", hint) from None
    except asyncio.CancelledError:
        await _cancel(hub, answer)
        raise
    if as_json:
        say_json(answer.message or await hub.call("tasks/get", {"id": answer.task_id}))
    return await answer.close(hub)


def _params(text: str, role: str, instance: str, context_id: str | None, task_id: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {
        "kind": "message",
        "role": "user",
        "messageId": str(uuid4()),
        "parts": [{"kind": "text", "text": text}],
    }
    message |= {"contextId": context_id} if context_id else {}
    message |= {"taskId": task_id} if task_id else {}
    params: dict[str, Any] = {"message": message, "configuration": {"blocking": True}}
    return params | ({"metadata": {"role": f"{role}:{instance}"}} if instance else {})


async def _ask(hub: Hub, answer: Answer, params: dict[str, Any], no_stream: bool) -> None:
    if no_stream:
        answer.take(Frame(None, await hub.call("message/send", params, role=answer.role)))
    else:
        await follow(hub, answer, hub.stream("message/stream", params, role=answer.role))


async def _cancel(hub: Hub, answer: Answer) -> None:
    """The person has left: the worker need not go on."""
    if answer.task_id is None or answer.over:
        return
    try:
        async with asyncio.timeout(3):
            await hub.call("tasks/cancel", {"id": answer.task_id})
    except (Problem, TimeoutError):
        talk(f"\nleft; the task may go on: rolecall tasks cancel {answer.task_id}")
    else:
        talk(f"\ncanceled {answer.task_id}")
