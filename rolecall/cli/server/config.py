"""`rolecall config`: the hub's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hub.settings.agents import AgentSetting
from hub.settings.model import load
from rolecall.cli.output import counted, print_facts, print_json, print_notice, print_table


@click.group()
def config() -> None:
    """The hub's settings: show their values and origins, or validate them."""


_file = click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
)


@config.command("show")
@_file
@click.option("--origin", is_flag=True, help="Also the origin of each value.")
@click.option("--json", "as_json", is_flag=True)
def show_config(file: Path | None, origin: bool, as_json: bool) -> None:
    """Show every setting with the value that `rolecall serve` would use here."""
    loaded = load(file=file)
    rows = loaded.rows()
    if as_json:
        document: dict[str, Any] = {key: {"value": value, "origin": source} for key, value, source in rows}
        if loaded.agents:
            document["agents"] = [{**agent.shown(), "origin": agent.origin} for agent in loaded.agents]
        print_json(document)
        return
    rows += [("agents", _line_of(agent), agent.origin) for agent in loaded.agents]
    if origin:
        print_table(("SETTING", "VALUE", "FROM"), rows)
    else:
        print_facts([(key, value) for key, value, _ in rows])


@config.command("validate")
@_file
def validate_config(file: Path | None) -> None:
    """Check file and environment, and the files that they name, and list every problem. Exit code 2 if there is one. Run it as
    the hub's user: it finds what `rolecall serve` would refuse, such as a certificate or tokens that it cannot read.
    """
    from hub.run import check

    loaded = load(file=file)
    check(loaded.settings, loaded.agents)
    count = len(loaded.agents)
    agents = f" · {counted(count, 'agent')}" if count else ""
    print_notice(
        f"ok · {loaded.file or 'no file'} · {len(loaded.origins)} of {len(loaded.rows())} settings are not at their default"
        + agents
    )


def _line_of(agent: AgentSetting) -> str:
    members = agent.shown()
    more = [f"labels {', '.join(f'{key}={value}' for key, value in agent.labels)}"] if agent.labels else []
    more += [f"credential in {agent.credential_file}"] if agent.credential_file else []
    return " · ".join([f"{agent.name} at {members['url']}", *more])
