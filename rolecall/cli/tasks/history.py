"""Tasks of the past: which ones are meant, `rolecall tasks export` and `rolecall tasks rm`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import CommandError, counted, local_time, print_notice
from rolecall.cli.tasks.ids import whole_id
from rolecall.cli.tasks.lists import summaries, tasks
from rolecall.model.a2a import TaskState
from rolecall.protocol.text.timestamp import timestamp

if TYPE_CHECKING:
    from worker_sdk import HubClient

_STATES = [state.value for state in TaskState if state is not TaskState.UNKNOWN]
_AGO = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Since(click.ParamType[str]):
    """A duration until now, or the beginning of a day, or a time, as the HTTP API takes it."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        ago = _AGO.fullmatch(value)
        at = time.time() - int(ago[1]) * _SECONDS[ago[2]] if ago else _time_here(value)
        if at is None:
            known = "a duration such as 30m, 12h, 7d, a day (today, yesterday, 2026-01-31) or a time such as 2026-01-31T12:00"
            self.fail(f"{value!r} is not {known}.", param, ctx)
        return timestamp(max(at, 0.0))


def _time_here(text: str) -> float | None:
    """In the zone of this machine, unless the text names another. None: it is no time."""
    days_ago = {"today": 0, "yesterday": 1}.get(text)
    try:
        if days_ago is not None:
            return datetime.combine(date.today() - timedelta(days=days_ago), datetime.min.time()).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def filters(command: _Command) -> _Command:
    """The options that say which tasks are meant."""
    for option in (
        click.option("--context-id", metavar="ID"),
        click.option("--state", type=click.Choice(_STATES), multiple=True, callback=_joined, help="Can be repeated."),
        click.option("--role", metavar="ROLE"),
        click.option(
            "--since",
            type=_Since(),
            metavar="TIME",
            help="Changed in the last 30m, 12h, 7d …, or since today, yesterday, a date or a time.",
        ),
    ):
        command = option(command)
    return command


def all_holders(does: str) -> Callable[[_Command], _Command]:
    return click.option("--all-holders", is_flag=True, help=f"{does} of all holders in the workspace; for operators.")


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
    print_notice(f"{counted(count, 'task')} · hub {hub.url}", "dim")


@click.command("rm")
@click.argument("task_ids", nargs=-1, metavar="[TASK_ID]...")
@click.option("--context-id", metavar="ID", help="All tasks of this conversation.")
@click.option("--holder", metavar="NAME", help="All tasks of this holder of tokens; for operators.")
@click.option(
    "--older-than", "ended_by", type=_Since(), metavar="TIME", help="Those that ended longer ago than 3d, or before a date."
)
@all_holders("TASK_ID may be")
@click.option("--yes", is_flag=True, help="Do not ask before several tasks are erased.")
@reaches_hub
async def remove(
    hub: HubClient,
    task_ids: tuple[str, ...],
    context_id: str | None,
    holder: str | None,
    ended_by: str | None,
    all_holders: bool,
    yes: bool,
) -> None:
    """Erase tasks: log, messages, push configs, summaries. What runs is canceled first, but --older-than leaves it. Nothing can
    bring them back.
    """
    if bool(task_ids) == any(value is not None for value in (context_id, holder, ended_by)):
        raise click.UsageError("Name what to erase: task ids, or --context-id, --holder or --older-than.")
    if all_holders and not task_ids:
        raise click.UsageError("--all-holders is for task ids. All tasks of a holder: --holder.")
    for task_id in task_ids:
        task_id = await whole_id(hub, task_id, all_holders=all_holders)
        await hub.erase_task(task_id, all_holders=all_holders)
        print_notice(f"erased {task_id}")
    if task_ids:
        return
    which = [f" of context {context_id}" if context_id else "", f" of holder {holder}" if holder else ""]
    which.append(f" that ended before {local_time(ended_by)}" if ended_by else "")
    if not yes:
        click.confirm(f"Erase all tasks{''.join(which)}?", abort=True, err=True)
    count = await hub.erase_tasks(context_id=context_id, holder=holder, ended_by=ended_by)
    # What ended long ago may well be nothing, as in a job that runs every night.
    if not count and ended_by is None:
        workspace = (await hub.holder())["workspace"]
        raise CommandError(
            f"there is no task{''.join(which)} in workspace {workspace}, so none was erased",
            "NOTHING_ERASED",
            1,
            "is the name right, and the token of the same workspace?",
        )
    print_notice(f"erased {counted(count, 'task')}{''.join(which)}")
