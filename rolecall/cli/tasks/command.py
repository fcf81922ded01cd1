"""`rolecall tasks`: running and ended tasks, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, follow, text_of
from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import print_data, print_facts, print_json, print_notice
from rolecall.cli.tasks import history, lists
from rolecall.cli.tasks.ids import whole_id
from rolecall.cli.tasks.reasons import in_words
from rolecall.cli.tasks.table import print_tasks
from rolecall.cli.tasks.tree import budgets_in_words, print_tree
from rolecall.cli.tasks.usage import used_in_words
from rolecall.model.task import COUNTED

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.group()
def tasks() -> None:
    """Tasks: list, show, follow, cancel, export, erase."""


tasks.add_command(history.export)
tasks.add_command(history.remove)


@tasks.command("ls")
@history.filters
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All of them, also those of which only a summary is left.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the members of the HTTP API.")
@reaches_hub
async def list_tasks(hub: HubClient, /, as_json: bool, everything: bool, limit: int, **wanted: str | None) -> None:
    """List tasks, the newest change first. TOKENS and COST, if any was reported: of a task that has started others, what its
    whole tree has used.
    """
    if everything:
        found = [task async for task in lists.tasks(hub, **wanted)]
        kept = [summary async for summary in lists.summaries(hub, **wanted)]
        count = f"{len(found)} tasks, and summaries of {len(kept)} whose logs have been deleted"
        found += kept
    else:
        page = await hub.tasks(limit=limit, **wanted)
        found = page["tasks"]
        count = f"{len(found)} of {page['total'] if page['total'] < COUNTED else f'{COUNTED:,}+'}"
    if as_json:
        print_json(found)
        return
    print_tasks(found)
    for task in found:
        if question := task.get("question"):
            print_notice(f"{task['id']} asks: {question}")
    print_notice(f"{count} · hub {hub.url}", "dim")


@tasks.command("show")
@click.argument("task_id")
@click.option("--json", "as_json", is_flag=True, help="The task as an A2A document; `tree`: the tasks of its tree.")
@reaches_hub
async def show_task(hub: HubClient, task_id: str, as_json: bool) -> None:
    """Show one task: its state, why its worker was chosen, the tree of tasks that it belongs to, and its results so far.
    TASK_ID may be the beginning or the end of the id.
    """
    task_id = await whole_id(hub, task_id)
    task, tree = (await hub.get_task(task_id)).raw, await hub.task_tree(task_id)
    branches = tree["tasks"]
    if as_json:
        print_json({**task, "tree": branches})
        return
    status, decision = task.get("status") or {}, await hub.task_decision(task_id)
    facts = [("task", task.get("id")), ("context", task.get("contextId")), ("state", status.get("state"))]
    facts += [("since", status.get("timestamp")), ("says", text_of(status.get("message") or {}))]
    if decision is not None:
        facts += [("worker", decision["worker"]), ("because", in_words(decision))]
    if len(branches) == 1:
        facts += [("used", used_in_words(tree["usage"])), *budgets_in_words(branches)]
    print_facts(facts)
    if len(branches) > 1:
        print_data("")
        print_tree(tree)
    for artifact in task.get("artifacts") or []:
        print_data(f"\n{artifact.get('name') or artifact.get('artifactId')}:\n{text_of(artifact)}")


@tasks.command("follow")
@click.argument("task_id")
@click.option("--after", type=click.IntRange(min=0), metavar="CURSOR", help="Only what came after this event.")
@reaches_hub
async def follow_task(hub: HubClient, task_id: str, after: int | None) -> int:
    """Print a task's answer until it ends, from its start or after a cursor. Ctrl-C does not stop the task."""
    task_id = await whole_id(hub, task_id)
    cursor = str(after) if after is not None else None
    answer = AnswerPrinter(task_id=task_id)
    await follow(hub, answer, hub.follow_task(task_id, after=cursor, give_up_after=PATIENCE))
    return await answer.close(hub)


@tasks.command("cancel")
@click.argument("task_id")
@reaches_hub
async def cancel_task(hub: HubClient, task_id: str) -> None:
    """Cancel a task."""
    task_id = await whole_id(hub, task_id)
    task = await hub.cancel_task(task_id)
    print_notice(f"{task_id} {task.state}")
