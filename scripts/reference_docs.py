"""Write docs/reference/{configuration,agents-file,cli,metrics}.md from the code. A test fails if they differ: run it again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from hub.settings.agents import keys as agent_keys
from hub.settings.entries import KeyText
from hub.settings.model import RETIRED, SPECS, flag, variable
from hub.settings.sources import OTHER_VARIABLES
from hub.telemetry.metrics import FAMILIES, PREFIX
from rolecall.cli import rolecall
from rolecall.cli.connect import EXIT_CODES
from rolecall.cli.up.agents_file import tables as agents_tables
from rolecall.model.ids import DOCTOR_ROLE

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/reference_docs.py. Change the code, then run it. -->\n"


def documents() -> dict[str, str]:
    """File name and content of every page."""
    return {
        "configuration.md": configuration(),
        "agents-file.md": agents_file(),
        "cli.md": command_line(),
        "metrics.md": metrics(),
    }


def configuration() -> str:
    lines = [
        "# Settings of the hub",
        NOTE,
        "A value comes from a flag of `rolecall serve`, else from the environment, else from `rolecall.toml` (in the working",
        "folder, or named by `--config` or `ROLECALL_CONFIG`), else it is the default. `rolecall config show --origin`",
        "shows which. The file has one `key = value` per line. An unknown key or `ROLECALL_` variable is an error that",
        "names the nearest one. A relative path in the file is relative to the file, any other to the working folder.",
        "`rolecall config validate` finds what `rolecall serve` would refuse.",
        "`ROLECALL_X_FILE` reads the value of `ROLECALL_X` from a file. An empty variable counts as not set.",
        "Seconds can be written as `500ms`, `90s`, `5m`, `24h`, `7d`; bytes as `512KiB`, `4MiB`.",
        "What Windows and macOS lack stands [on a page of its own](systems.md).",
        "",
    ]
    for key, spec in SPECS.items():
        also = "".join(f", `{name}`" for name in spec.aliases)
        lines += [f"## `{key}`", f"{spec.about} {spec.effect}", ""]
        lines += [f"Default: {spec.default} · flag `{flag(key)}` · environment `{variable(key)}`{also}", ""]
    lines += [
        "## `[[agents]]`",
        "Agents that do not enrol: the hub holds their leases while they answer ([how](../howto/agents-that-do-not-enrol.md)).",
        "They stand in the file alone, each under a line `[[agents]]`, and belong to the workspace `default`. SIGHUP has",
        "`rolecall serve` read them again, and nothing else; Windows has no SIGHUP.",
        "",
        "| key | what it is | its value |",
        "|---|---|---|",
    ]
    lines += rows_of(agent_keys())
    lines += [
        "",
        "## Other variables",
        "Read by clients, workers and the command line.",
        "",
        "| variable | what it is |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {about} |" for name, about in OTHER_VARIABLES.items()]
    return "\n".join(lines) + "\n"


def agents_file() -> str:
    lines = [
        "# agents.toml",
        NOTE,
        "What `rolecall up` runs ([how](../howto/ten-agents-on-a-laptop.md)): the file in the working folder, or the file or",
        "folder that the command names. NAME is what a program's lines begin with, and part of its [name at the",
        "hub](../howto/ten-agents-on-a-laptop.md#names): letters, digits, dots, dashes. An unknown key is an error that names",
        "the nearest one. `rolecall up --check` checks the file and what it names; `rolecall up --reload` follows it.",
        "",
        "The hub's own settings, and the agents whose leases it holds itself (`[[agents]]`), stand in",
        "[rolecall.toml](configuration.md), which every command reads.",
        "",
    ]
    for table, keys in agents_tables():
        lines += [f"## {table}", "", "| key | what it is | its value |", "|---|---|---|", *rows_of(keys), ""]
    return "\n".join(lines)


def rows_of(keys: Iterable[KeyText]) -> Iterator[str]:
    for key in keys:
        about = key.about.replace("\n", " ")
        yield f"| `{key.name}`{', required' if key.required else ''} | {about} | {key.expected} |"


def command_line() -> str:
    lines = [
        "# The command line",
        NOTE,
        "Data goes to stdout, notices to stderr. Lists are tables; with `--json` they are one JSON array with the members of",
        "the HTTP API. Colour is for terminals only; `NO_COLOR` and `TERM=dumb` are respected.",
        "",
        "## Exit codes",
        "",
        "| code | meaning | reasons |",
        "|---|---|---|",
    ]
    meanings = {
        0: "done",
        1: "the task failed or was rejected; any other error",
        2: "usage or settings",
        3: "hub unreachable, or it accepts no calls; a worker whose name was taken over",
        4: "not authenticated, or not allowed",
        5: "no live worker, no such role or skill",
        6: "timed out",
        7: "the agent needs input",
        8: "the stream was lost",
        130: "interrupted (Ctrl-C); `send` cancels its task first",
    }
    for code, meaning in meanings.items():
        reasons = ", ".join(f"`{reason}`" for reason, number in EXIT_CODES.items() if number == code)
        lines.append(f"| {code} | {meaning} | {reasons} |")
    lines.append("")
    for path, command in commands(rolecall, "rolecall"):
        lines += section(path, command)
    return "\n".join(lines) + "\n"


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its full name, in the order of the help."""
    context = click.Context(group)
    for name in group.commands or group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{path} {name}", command
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def section(path: str, command: click.Command) -> list[str]:
    arguments = " ".join(
        argument.make_metavar(click.Context(command)) for argument in command.params if isinstance(argument, click.Argument)
    )
    text = [line.strip() for line in (command.help or "").strip().splitlines()]
    lines = [f"## `{' '.join(filter(None, (path, arguments)))}`", *text, ""]
    settings: set[str | None] = {*SPECS, *RETIRED} if path in ("rolecall serve", "rolecall dev") else set()
    if settings:
        lines += ["One for every setting in [configuration](configuration.md), and:", ""]
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in settings:
            value = "" if option.is_flag else f" {option.make_metavar(click.Context(command))}"
            shown = f" [default: {option.default:g}]" if isinstance(option.default, float) else ""
            shown = f" [default: {option.default}]" if option.show_default and not shown else shown
            lines.append(f"- `{', '.join((*option.opts, *option.secondary_opts))}{value}` {option.help or ''}{shown}".rstrip())
    return [*lines, ""]


def metrics() -> str:
    lines = [
        "# Metrics",
        NOTE,
        "`GET /metrics`, in Prometheus' text format. A role that no worker ever enrolled under counts as `_unknown`:",
        "callers cannot make series. `method` is the canonical name of a call, the same for every spelling.",
        f"The calls of `rolecall doctor`, to the role `{DOCTOR_ROLE}`, are left out wherever there is a `role`.",
        f"Beside these come the usual `{PREFIX}process_…` metrics of the process where the platform has them.",
        "",
        "| name | type | labels | what it is |",
        "|---|---|---|---|",
    ]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
        lines.append(f"| `{PREFIX}{family.name}` | {family.kind} | {labels} | {family.about} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    for name, content in documents().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
