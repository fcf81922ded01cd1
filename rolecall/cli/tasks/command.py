"""`rolecall tasks`: running and ended tasks, and their answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rolecall.cli.answer import PATIENCE, AnswerPrinter, follow, text_of
from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import counted, cut, local_time, local_zone, print_data, print_facts, print_json, print_notice, took
from rolecall.cli.tasks import history, lists
from rolecall.cli.tasks.ids import whole_id
from rolecall.cli.tasks.reasons import in_words
from rolecall.cli.tasks.results import save_results
from rolecall.cli.tasks.table import print_tasks
from rolecall.cli.tasks.tree import budgets_in_words, print_tree
from rolecall.cli.tasks.usage import used_in_words
from rolecall.model.a2a import JsonObject
from rolecall.model.task import COUNTED

_LISTED = 50
_LONGEST_ASKED = 500

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.group()
def tasks() -> None:
    """Tasks: list, show, follow, save, cancel, export, erase."""


tasks.add_command(history.export)
tasks.add_command(history.remove)


@tasks.command("ls")
@history.filters
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"At most so many. [default: {_LISTED}; with --all no limit]"
)
@click.option("--all", "everything", is_flag=True, help="All of them, also those of which only a summary is left.")
@history.all_holders("Tasks")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the members of the HTTP API.")
@reaches_hub
async def list_tasks(
    hub: HubClient, /, as_json: bool, everything: bool, all_holders: bool, limit: int | None, **wanted: str | None
) -> None:
    """List tasks, the newest change first, with the beginning of what was asked, and why it failed. TOKENS and COST, if any was
    reported: of a task that has started others, what its whole tree has used.
    """
    if everything and all_holders:
        raise click.UsageError("--all also lists summaries, which only their holder may. Leave it out, or --all-holders.")
    if everything:
        found = [task async for task in lists.first(limit, lists.tasks(hub, **wanted))]
        left = None if limit is None else limit - len(found)
        kept = [summary async for summary in lists.first(left, lists.summaries(hub, **wanted))]
        count = f"{counted(len(found), 'task')}, and summaries of {len(kept)} whose logs have been deleted"
        found += kept
    else:
        found, total = await lists.newest(hub, limit or _LISTED, all_holders=all_holders, **wanted)
        count = f"{len(found)} of {total if total < COUNTED else f'{COUNTED:,}+'}"
        count += "; --limit shows more, --all everything" if len(found) < total else ""
    if as_json:
        print_json(found)
        return
    print_tasks(found)
    for task in found:
        if question := task.get("question"):
            print_notice(f"{task['id']} asks: {question}")
    print_notice(f"{count} · times are {local_zone()} · hub {hub.url}", "dim")


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
    row: JsonObject = next((branch["task"] for branch in branches if branch["task"]["id"] == task.get("id")), {})
    asked = next((text_of(message) for message in task.get("history") or () if message.get("role") == "user"), "")
    facts = [("task", task.get("id")), ("context", task.get("contextId")), ("asked", cut(asked, _LONGEST_ASKED))]
    facts += [("began", _local(row.get("created"))), ("took", took(row))]
    facts += [("state", status.get("state")), ("since", _local(status.get("timestamp")))]
    facts += [("reason", _reason_of(status)), ("says", text_of(status.get("message") or {}))]
    if decision is not None:
        facts += [("worker", decision["worker"]), ("because", in_words(decision))]
    if len(branches) == 1:
        facts += [("used", used_in_words(tree["usage"])), *budgets_in_words(branches)]
    print_facts(facts)
    if len(branches) > 1:
        print_data("")
        print_tree(tree)
    artifacts = task.get("artifacts") or []
    for number, artifact in enumerate(artifacts, 1):
        print_data(f"\n{artifact.get('name') or f'artifact {number}'}:\n{text_of(artifact)}")
    if any("file" in part for artifact in artifacts for part in artifact.get("parts") or ()):
        print_notice(f"save its files: rolecall tasks save {task_id} DIR", "dim")


def _local(at: object) -> str:
    return f"{local_time(at)} {local_zone(at)}" if at else ""


def _reason_of(status: JsonObject) -> str:
    """The code, if the hub itself has ended the task."""
    own = ((status.get("message") or {}).get("metadata") or {}).get("rolecall")
    return str(own.get("reason") or "") if isinstance(own, dict) else ""


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


@tasks.command("save")
@click.argument("task_id")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@reaches_hub
async def save_task(hub: HubClient, task_id: str, folder: Path) -> None:
    """Save the files of a task into FOLDER, which is made if there is none, and the texts and data of its artifacts as files. A
    name that is taken gets a number. FOLDER is the current one by default.
    """
    await save_results(hub, await whole_id(hub, task_id), folder)


@tasks.command("cancel")
@click.argument("task_id")
@history.all_holders("TASK_ID may be")
@reaches_hub
async def cancel_task(hub: HubClient, task_id: str, all_holders: bool) -> None:
    """Cancel a task."""
    task_id = await whole_id(hub, task_id, all_holders=all_holders)
    state = (await hub.cancel_any_task(task_id))["state"] if all_holders else (await hub.cancel_task(task_id)).state
    print_notice(f"{task_id} {state}")
