"""Tasks of the past: which ones are meant, `rolecall tasks export` and `rolecall tasks rm`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import CommandError, print_notice
from rolecall.cli.tasks.ids import whole_id
from rolecall.cli.tasks.lists import summaries, tasks
from rolecall.model.a2a import TaskState
from rolecall.protocol.text.timestamp import moment, timestamp

if TYPE_CHECKING:
    from worker_sdk import HubClient

_STATES = [state.value for state in TaskState if state is not TaskState.UNKNOWN]
_AGO = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Since(click.ParamType[str]):
    """A duration until now, or a time, as the HTTP API takes it."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        ago = _AGO.fullmatch(value)
        at = time.time() - int(ago[1]) * _SECONDS[ago[2]] if ago else moment(value)
        if at is None:
            self.fail(
                f"{value!r} is neither a duration such as 30m, 12h, 7d nor a time such as 2026-01-31T12:00:00Z.", param, ctx
            )
        return timestamp(max(at, 0.0))


def filters(command: _Command) -> _Command:
    """The options that say which tasks are meant."""
    for option in (
        click.option("--context-id", metavar="ID"),
        click.option("--state", type=click.Choice(_STATES), multiple=True, callback=_joined, help="Can be repeated."),
        click.option("--role", metavar="ROLE"),
        click.option("--since", type=_Since(), metavar="TIME", help="Changed in the last 30m, 12h, 7d …, or since a time."),
    ):
        command = option(command)
    return command


def _joined(ctx: click.Context, param: click.Parameter, states: tuple[str, ...]) -> str | None:
    return ",".join(states) or None


@click.command("export")
@filters
@click.option("--summaries", "with_summaries", is_flag=True, help="Also what is left of tasks whose logs have been deleted.")
@reaches_hub
async def export(hub: HubClient, /, with_summaries: bool, **wanted: str | None) -> None:
    """Write tasks as JSON lines, the newest change first.

    A line has the members of `tasks ls --json`, and `task`: the task as an A2A document, with history and artifacts. Of a
    summary there is no document.
    """
    from worker_sdk.errors import TaskNotFound

    count = 0
    async for item in tasks(hub, **wanted):
        try:
            document = (await hub.get_task(item["id"])).raw
        except TaskNotFound:
            continue  # it has been deleted meanwhile
        click.echo(json.dumps({**item, "task": document}, ensure_ascii=False))
        count += 1
    if with_summaries:
        async for item in summaries(hub, **wanted):
            click.echo(json.dumps(item, ensure_ascii=False))
            count += 1
    print_notice(f"{count} tasks · hub {hub.url}", "dim")


@click.command("rm")
@click.argument("task_ids", nargs=-1, metavar="[TASK_ID]...")
@click.option("--context-id", metavar="ID", help="All tasks of this conversation.")
@click.option("--holder", metavar="NAME", help="All tasks of this holder of tokens; for operators.")
@click.option("--yes", is_flag=True, help="Do not ask before several tasks are erased.")
@reaches_hub
async def remove(hub: HubClient, task_ids: tuple[str, ...], context_id: str | None, holder: str | None, yes: bool) -> None:
    """Erase tasks: log, messages, push configs, summaries. What runs is canceled first. Nothing can bring them back."""
    if bool(task_ids) == (context_id is not None or holder is not None):
        raise click.UsageError("Name what to erase: task ids, or --context-id, or --holder.")
    for task_id in task_ids:
        task_id = await whole_id(hub, task_id)
        await hub.erase_task(task_id)
        print_notice(f"erased {task_id}")
    if task_ids:
        return
    whose = " of ".join(what for what in (context_id and f"context {context_id}", holder and f"holder {holder}") if what)
    if not yes:
        click.confirm(f"Erase all tasks of {whose}?", abort=True, err=True)
    count = await hub.erase_tasks(context_id=context_id, holder=holder)
    if not count:
        workspace = (await hub.holder())["workspace"]
        raise CommandError(
            f"there is no task of {whose} in workspace {workspace}, so none was erased",
            "NOTHING_ERASED",
            1,
            "is the name right, and the token of the same workspace?",
        )
    print_notice(f"erased {count} tasks of {whose}")
