"""`rolecall agents` and `rolecall roles`: the live workers and roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.agents.example_call import example_call
from rolecall.cli.agents.schemas import members_of
from rolecall.cli.completion import complete_skill, complete_worker
from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import print_facts, print_json, print_notice, print_table
from rolecall.model.worker import Health
from rolecall.protocol.cards import skills

if TYPE_CHECKING:
    from worker_sdk import AgentInfo, HubClient


@click.group()
def agents() -> None:
    """The live workers: list, show, drain and undrain, remove."""


@click.group()
def roles() -> None:
    """The roles that live workers serve."""


@agents.command("ls")
@click.option("--role", metavar="ROLE")
@click.option("--skill", metavar="ID", shell_complete=complete_skill, help="Id or name of a skill.")
@click.option("--tag", metavar="TAG", help="Tag of a skill.")
@click.option("--capability", metavar="NAME", help="Such as streaming.")
@click.option("--label", metavar="NAME[=VALUE]")
@click.option("--state", type=click.Choice([health.value for health in Health]))
@click.option("-q", "--search", metavar="TEXT", help="In name, description and skills.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the members of the HTTP API.")
@reaches_hub
async def list_agents(hub: HubClient, /, label: str | None, search: str | None, as_json: bool, **filters: str | None) -> None:
    """List live workers."""
    found = await hub.discover_agents(labels=_label(label), q=search, **filters)
    if as_json:
        print_json([agent.raw for agent in found])
        return
    columns = ["ROLE", "INSTANCE", "STATE", "LEASE", "LOAD", "URL"]
    rows = [[a.role, a.instance, a.state, _lease(a), _load(a), a.url] for a in found]
    reasons = [_reason(a) for a in found]
    if any(reasons):
        columns.append("REASON")
        rows = [[*row, reason] for row, reason in zip(rows, reasons, strict=True)]
    print_table(columns, rows)
    states = Counter(agent.state for agent in found)
    counts = [f"{count} {state}" for state, count in sorted(states.items())] or ["no live worker"]
    print_notice(" · ".join([*counts, f"hub {hub.url}"]), "dim")


@agents.command("show")
@click.argument("name", shell_complete=complete_worker)
@click.option("--json", "as_json", is_flag=True)
@reaches_hub
async def show_agent(hub: HubClient, name: str, as_json: bool) -> None:
    """Show one worker, NAME being role:instance, what its skills take, and a call to try."""
    from worker_sdk.config import hub_address

    async with _live_worker(hub, name):
        agent = await hub.agent(name)
    more = agent.raw
    if as_json:
        print_json(more)
        return
    on = [key for key, value in (more.get("capabilities") or {}).items() if value]
    facts = [
        ("name", agent.name),
        ("state", agent.state + (f" ({_reason(agent)})" if _reason(agent) else "")),
        ("description", agent.description),
        ("url", agent.url),
        ("lease", _lease(agent)),
        ("card", _card_read(more.get("card_read"))),
        ("load", _load(agent)),
        ("epoch", more.get("epoch")),
        ("last seen", agent.last_seen),
        ("capabilities", ", ".join(on)),
        ("labels", ", ".join(f"{key}={value}" for key, value in agent.labels.items())),
        ("models", ", ".join(more.get("models_supported") or [])),
        ("idempotent", "yes" if more.get("idempotent") else ""),
    ]
    offer = {**agent.raw, **agent.card}
    for skill in skills(offer):
        facts.append(("skill", f"{skill.id}: {skill.description or skill.name}"))
        facts += [("  takes", members_of(skill.input_schema))] if skill.input_schema is not None else []
    option = "" if hub.url == hub_address().url else f"--hub {hub.url} "
    print_facts([*facts, ("try", f"rolecall send {option}{example_call(agent.role, offer)}")])


@agents.command("drain")
@click.argument("name", shell_complete=complete_worker)
@click.option("--reason", metavar="TEXT", help="Shown with the worker.")
@reaches_hub
async def drain_agent(hub: HubClient, name: str, reason: str | None) -> None:
    """Give worker NAME no new calls; its current calls continue."""
    async with _live_worker(hub, name):
        agent = await hub.drain_agent(name, reason or "")
    print_notice(f"{agent.name} is draining · {agent.in_flight} in flight")


@agents.command("undrain")
@click.argument("name", shell_complete=complete_worker)
@reaches_hub
async def undrain_agent(hub: HubClient, name: str) -> None:
    """Give worker NAME new calls again, after `drain`. One that is about to stop by itself stays as it is."""
    async with _live_worker(hub, name):
        agent = await hub.undrain_agent(name)
    print_notice(f"{agent.name} is {agent.state} · {agent.in_flight} in flight")


@agents.command("rm")
@click.argument("name", shell_complete=complete_worker)
@reaches_hub
async def remove_agent(hub: HubClient, name: str) -> None:
    """End the lease of worker NAME. A worker that still runs enrols again with its next heartbeat: drain it instead."""
    async with _live_worker(hub, name):
        await hub.remove_agent(name)
    print_notice(f"{name} is no longer registered")


@roles.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@reaches_hub
async def list_roles(hub: HubClient, as_json: bool) -> None:
    """List the roles that can be called, and how many workers each has."""
    found = [_role(name, members) for name, members in (await hub.roles()).items()]
    if as_json:
        print_json(found)
        return
    rows = [(r["role"], r["workers"], r["ready"], r["in_flight"], ", ".join(r["skills"]), r["description"]) for r in found]
    print_table(("ROLE", "WORKERS", "READY", "IN FLIGHT", "SKILLS", "DESCRIPTION"), rows)


def _role(name: str, members: Sequence[AgentInfo]) -> dict[str, Any]:
    return {
        "role": name,
        "workers": len(members),
        "ready": sum(member.state == Health.READY for member in members),
        "in_flight": sum(member.in_flight for member in members),
        "skills": sorted({str(skill.get("id")) for member in members for skill in member.skills}),
        "description": next((member.description for member in members if member.description), ""),
    }


def _label(given: str | None) -> dict[str, str | None] | None:
    if given is None:
        return None
    name, equals, value = given.partition("=")
    return {name: value if equals else None}


@asynccontextmanager
async def _live_worker(hub: HubClient, name: str) -> AsyncIterator[None]:
    """Around a call about one worker: LeaseUnknown means here that no such worker is live."""
    from worker_sdk.errors import LeaseUnknown

    if ":" not in name:
        raise problem(f'"{name}" names a role, not a worker', "USAGE", "give role:instance, as in rolecall agents ls")
    try:
        yield
    except LeaseUnknown as error:
        live = [agent.name for agent in await hub.discover_agents(role=name.partition(":")[0])]
        hint = f"live: {', '.join(live)}" if live else "list the live workers: rolecall agents ls"
        raise problem(f'no live worker "{name}"', "LEASE_UNKNOWN", hint) from error


def _card_read(read: dict[str, Any] | None) -> str:
    """What became of the hub's reading of its card. Empty: it sent its card."""
    if read is None:
        return ""
    note = str(read.get("note") or "")
    if not read.get("at"):
        return f"not read: {note}"
    return f"read at {read['at']} from {read.get('url')}" + (f"; {note}" if note else "")


def _lease(agent: AgentInfo) -> str:
    return "for ever" if agent.expires_in is None else f"{agent.expires_in:.0f}s"


def _reason(agent: AgentInfo) -> str:
    """Why it has its state; often empty."""
    return str(agent.raw.get("reason") or "")


def _load(agent: AgentInfo) -> str:
    return f"{agent.in_flight}/{agent.capacity if agent.capacity is not None else '∞'}"
