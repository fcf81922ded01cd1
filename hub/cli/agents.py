"""`rolecall agents` and `rolecall roles`: who is there."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import quote

import click

from hub.cli.connect import Hub, problem, reaches_hub
from hub.cli.output import Problem, say_facts, say_json, say_table, talk


@click.group()
def agents() -> None:
    """The live workers: list, look at, drain, remove."""


@click.group()
def roles() -> None:
    """The roles that live workers serve."""


@agents.command("ls")
@click.option("--role", metavar="ROLE")
@click.option("--skill", metavar="ID", help="Id or name of a skill.")
@click.option("--tag", metavar="TAG", help="Tag of a skill.")
@click.option("--capability", metavar="NAME", help="Such as streaming.")
@click.option("--label", metavar="NAME[=VALUE]")
@click.option("--state", type=click.Choice(["ready", "suspect", "draining"]))
@click.option("-q", "--search", metavar="TEXT", help="In name, description and skills.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the members of the HTTP API.")
@reaches_hub
async def list_agents(hub: Hub, /, search: str | None, as_json: bool, **filters: str | None) -> None:
    """List live workers."""
    found = await _find(hub, q=search, **filters)
    if as_json:
        say_json(found)
        return
    rows = [(a["role"], a["instance_id"], a["state"], _lease(a), _load(a), a["url"]) for a in found]
    say_table(("ROLE", "INSTANCE", "STATE", "LEASE", "LOAD", "URL"), rows)
    states = Counter(str(agent["state"]) for agent in found)
    counts = [f"{count} {state}" for state, count in sorted(states.items())] or ["no live worker"]
    talk(" · ".join([*counts, f"hub {hub.url}"]), "dim")


@agents.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True)
@reaches_hub
async def show_agent(hub: Hub, name: str, as_json: bool) -> None:
    """Show one worker, NAME being role:instance."""
    agent = await _ask(hub, "GET", name)
    if as_json:
        say_json(agent)
        return
    on = [key for key, value in (agent.get("capabilities") or {}).items() if value]
    facts = [
        ("name", agent["name"]),
        ("state", agent["state"] + (f" ({agent['reason']})" if agent.get("reason") else "")),
        ("description", agent.get("description")),
        ("url", agent["url"]),
        ("lease", _lease(agent)),
        ("load", _load(agent)),
        ("epoch", agent.get("epoch")),
        ("last seen", agent.get("last_seen")),
        ("capabilities", ", ".join(on)),
        ("labels", ", ".join(f"{key}={value}" for key, value in (agent.get("labels") or {}).items())),
        ("models", ", ".join(agent.get("models_supported") or [])),
    ]
    say_facts(facts + [("skill", f"{s.get('id')}: {s.get('description') or s.get('name')}") for s in agent.get("skills") or []])


@agents.command("drain")
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="Shown wherever the worker is.")
@reaches_hub
async def drain_agent(hub: Hub, name: str, reason: str | None) -> None:
    """Give worker NAME no new calls; the ones it has go on."""
    agent = await _ask(hub, "POST", name, "/drain", {"reason": reason} if reason else {})
    load = agent["load"]["in_flight"]
    talk(f"{agent['name']} is draining · {load} in flight")


@agents.command("rm")
@click.argument("name")
@reaches_hub
async def remove_agent(hub: Hub, name: str) -> None:
    """End the lease of worker NAME. A worker that still runs enrols again with its next heartbeat: drain it instead."""
    await _ask(hub, "DELETE", name)
    talk(f"{name} is no longer registered")


@roles.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@reaches_hub
async def list_roles(hub: Hub, as_json: bool) -> None:
    """List the roles that can be called, and how many workers each has."""
    by_role: dict[str, list[dict[str, Any]]] = {}
    for agent in await _find(hub):
        by_role.setdefault(agent["role"], []).append(agent)
    found = [_role(name, members) for name, members in sorted(by_role.items())]
    if as_json:
        say_json(found)
        return
    rows = [(r["role"], r["workers"], r["ready"], r["in_flight"], ", ".join(r["skills"]), r["description"]) for r in found]
    say_table(("ROLE", "WORKERS", "READY", "IN FLIGHT", "SKILLS", "DESCRIPTION"), rows)


def _role(name: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    skills = {str(skill.get("id")) for member in members for skill in member.get("skills") or []}
    return {
        "role": name,
        "workers": len(members),
        "ready": sum(member["state"] == "ready" for member in members),
        "in_flight": sum(member["load"]["in_flight"] for member in members),
        "skills": sorted(skills),
        "description": next((member["description"] for member in members if member.get("description")), ""),
    }


async def _find(hub: Hub, **filters: str | None) -> list[dict[str, Any]]:
    """Every page of what the filters leave."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await hub.get("/registry/agents", **filters, cursor=cursor)
        found += page["agents"]
        cursor = page.get("next_cursor")
        if not cursor:
            return found


async def _ask(hub: Hub, method: str, name: str, what: str = "", body: dict[str, Any] | None = None) -> Any:
    """About one worker. One that is not live is the person's mistake here, not a lease's."""
    if ":" not in name:
        raise problem(f'"{name}" names a role, not a worker', "USAGE", "give role:instance, as in rolecall agents ls")
    try:
        return await hub.request(method, f"/registry/agents/{quote(name, safe=':')}{what}", body)
    except Problem as error:
        if error.reason != "LEASE_UNKNOWN":
            raise
        raise problem(f'no live worker "{name}"', "LEASE_UNKNOWN", "see who is there: rolecall agents ls") from error


def _lease(agent: dict[str, Any]) -> str:
    left = agent.get("expires_in")
    return "for ever" if left is None else f"{left:.0f}s"


def _load(agent: dict[str, Any]) -> str:
    load = agent["load"]
    return f"{load['in_flight']}/{load['capacity'] if load['capacity'] is not None else '∞'}"
