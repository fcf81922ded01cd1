"""`rolecall inbox`: what waits for a person, across roles, and how it is answered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, follow
from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import duration, print_data, print_json, print_notice
from rolecall.cli.tasks.ids import whole_id
from rolecall.cli.tasks.lists import tasks
from rolecall.model.a2a import PAUSED, JsonObject
from rolecall.protocol.text.timestamp import moment

if TYPE_CHECKING:
    from worker_sdk import HubClient

_WAITING = ",".join(sorted(PAUSED))


@click.group(invoke_without_command=True)
@click.option("--role", metavar="ROLE")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the members of the HTTP API.")
@click.pass_context
def inbox(context: click.Context, role: str | None, as_json: bool) -> None:
    """What waits for a person, across all roles, the longest wait first; `inbox answer` answers it."""
    if context.invoked_subcommand is None:
        context.invoke(_show, role=role, as_json=as_json)


@click.command(hidden=True)
@reaches_hub
async def _show(hub: HubClient, role: str | None, as_json: bool) -> None:
    found = [task async for task in tasks(hub, role=role, state=_WAITING)]
    found.sort(key=lambda task: str(task["since"]))
    if as_json:
        print_json(found)
        return
    # A question of a child is also its parent's: it is shown where it came up to.
    passed_on = {task.get("child") for task in found}
    found = [task for task in found if task["id"] not in passed_on]
    for task in found:
        for line in lines_of(task, time.time()):
            print_data(line)
    print_notice(f"{len(found)} waiting · hub {hub.url}" + (" · rolecall inbox answer TASK_ID TEXT" if found else ""), "dim")


def lines_of(task: JsonObject, now: float) -> list[str]:
    """A task that waits, as people read it."""
    since = moment(str(task.get("since")))
    waited = f" · for {duration(now - since)}" if since is not None else ""
    needs = " · needs a login" if task["state"] == "auth-required" else ""
    question = str(task.get("question") or "(the question has no text)")
    return [
        f"{task['id']}  {task.get('worker') or task['role']}{waited}{needs}",
        *(f"  {line}" for line in question.splitlines()),
    ]


@inbox.command("answer")
@click.argument("task_id")
@click.argument("text")
@reaches_hub
async def answer(hub: HubClient, task_id: str, text: str) -> int:
    """Answer a task that waits, and print what comes of it. TASK_ID may be the beginning or the end of the id. Ctrl-C leaves;
    the task goes on.
    """
    task_id = await whole_id(hub, task_id, state=_WAITING)
    async for waiting in tasks(hub, state=_WAITING):
        if waiting["id"] == task_id:
            break
    else:
        raise problem(f"the task {task_id} does not wait for an answer", "NOT_WAITING", "see rolecall inbox")
    printer = AnswerPrinter(waiting["role"], task_id=task_id)
    try:
        await follow(hub, printer, hub.stream(waiting["role"], text, task_id=task_id, give_up_after=PATIENCE))
    except asyncio.CancelledError:
        print_notice(f"\nthe task goes on: rolecall tasks follow {task_id}")
        raise
    return await printer.close(hub)
