"""`rolecall tokens`: make, list and revoke what lets people and workers in. Works on the hub's own file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError, say, say_json, say_table, talk
from rolecall.cli.server.settings import load_settings

if TYPE_CHECKING:
    from hub.identity.tokens import TokenEntry
    from rolecall.model.principal import Principal

_KINDS = ("admin", "client", "worker", "reader")
_DAY = 86_400.0


@click.group()
@click.option("--tokens", "file", type=click.Path(path_type=Path), help="The hub's file of tokens. [env: ROLECALL_TOKENS]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The hub's data folder. [env: ROLECALL_DATA_DIR]")
@click.pass_context
def tokens(context: click.Context, file: Path | None, data_dir: Path | None) -> None:
    """What lets people and workers in. The hub reads the file again when it changes: no restart."""
    from hub.identity.tokens import FILE_NAME

    settings = load_settings(None, {"tokens": file, "data_dir": data_dir}).settings
    context.obj = settings.tokens or settings.data_dir / FILE_NAME


@tokens.command("new")
@click.option("--name", required=True, help="Who holds it. Tasks belong to this name, whichever of its tokens is shown.")
@click.option("--kind", type=click.Choice(_KINDS), default="client", show_default=True)
@click.option("--workspace", default="default", show_default=True, help="What its holder sees and touches.")
@click.option("--role", "roles", multiple=True, help="A role that a worker may enrol under; a trailing * for any ending.")
@click.option("--network", "networks", multiple=True, help="A network (CIDR) that a worker's URL must lie in.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it is valid. Without: until it is revoked.")
@click.pass_obj
def new(path: Path, /, days: float | None, **holder: Any) -> None:
    """Make a token and print it, once."""
    from hub.identity.tokens import new as make

    token, entry = make(path, _principal(**holder), lasts=days * _DAY if days else None, now=time.time())
    talk(f"{entry.principal.kind} token {entry.id} for {entry.principal.name}; it is not shown again")
    say(token)


@tokens.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def ls(path: Path, as_json: bool) -> None:
    """Who holds tokens. The tokens themselves are kept nowhere."""
    from hub.identity.tokens import read

    entries = read(path)
    if as_json:
        say_json([_item(entry) for entry in entries])
        return
    if not entries:
        talk("no tokens: rolecall tokens new --name me --kind admin")
        return
    columns = ("id", "name", "kind", "workspace", "roles", "expires")
    say_table([column.upper() for column in columns], [[str(_item(entry)[column]) for column in columns] for entry in entries])


@tokens.command("revoke")
@click.argument("name")
@click.pass_obj
def revoke(path: Path, name: str) -> None:
    """End a token by its id, or all of a holder's by his NAME. It takes effect within a second."""
    from hub.identity.tokens import revoke as end

    gone = end(path, name)
    if not gone:
        raise CommandError(f"no token {name}", "TOKEN_UNKNOWN", 1, "rolecall tokens ls")
    talk(f"revoked: {', '.join(entry.id for entry in gone)}")


def _principal(name: str, kind: str, workspace: str, roles: tuple[str, ...], networks: tuple[str, ...]) -> Principal:
    from ipaddress import ip_network

    from rolecall.model.ids import is_role
    from rolecall.model.principal import Kind, Principal

    for role in roles:
        if role != "*" and not is_role(role.removesuffix("*") or "x"):
            raise CommandError(f"{role} is no role", "USAGE", 2)
    if kind == Kind.WORKER and not roles:
        raise CommandError("a worker's token names its roles", "USAGE", 2, "--role code-reviewer, or --role '*' for any")
    try:
        found = tuple(ip_network(network) for network in networks)
    except ValueError as error:
        raise CommandError("a network is written like 10.0.0.0/8", "USAGE", 2) from error
    return Principal(name, Kind(kind), workspace, roles, found)


def _item(entry: TokenEntry) -> dict[str, Any]:
    holder = entry.principal
    return {
        "id": entry.id,
        "name": holder.name,
        "kind": holder.kind.value,
        "workspace": holder.workspace,
        "roles": ",".join(holder.roles) or "-",
        "expires": _day(entry.expires),
    }


def _day(moment: float | None) -> str:
    return "never" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment)) + "Z"
