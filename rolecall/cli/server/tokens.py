"""`rolecall tokens`: make, list and revoke tokens of clients and workers, in the hub's file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError, print_data, print_json, print_notice, print_table
from rolecall.cli.server.settings import load_settings
from rolecall.model.principal import Kind, Principal

if TYPE_CHECKING:
    from hub.identity.tokens import TokenEntry


_DAY = 86_400.0


@click.group()
@click.option("--tokens", "file", type=click.Path(path_type=Path), help="The hub's file of tokens. [env: ROLECALL_TOKENS]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The hub's data folder. [env: ROLECALL_DATA_DIR]")
@click.pass_context
def tokens(context: click.Context, file: Path | None, data_dir: Path | None) -> None:
    """Tokens of clients and workers. The hub reads the file again when it changes, without a restart."""
    from hub.identity.tokens import FILE_NAME

    settings = load_settings(None, {"tokens": file, "data_dir": data_dir}).settings
    context.obj = settings.tokens or settings.data_dir / FILE_NAME


@tokens.command("new")
@click.option(
    "--name", required=True, help="Its holder. Tasks belong to the holder, with whichever of its tokens they were made."
)
@click.option("--kind", type=click.Choice([kind.value for kind in Kind]), default=Kind.CLIENT.value, show_default=True)
@click.option("--workspace", default="default", show_default=True, help="The workspace that its holder can see and change.")
@click.option("--role", "roles", multiple=True, help="A role that a worker may enrol under; a trailing * matches any ending.")
@click.option("--network", "networks", multiple=True, help="A network (CIDR) that a worker's URL must be in.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it is valid. Default: until it is revoked.")
@click.pass_obj
def new(path: Path, /, days: float | None, **holder: Any) -> None:
    """Make a token and print it once."""
    from hub.identity.tokens import new as make

    token, entry = make(path, _principal(**holder), lasts=days * _DAY if days else None, now=time.time())
    print_notice(f"{entry.principal.kind} token {entry.id} for {entry.principal.name}; it is not shown again")
    print_data(token)


@tokens.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def ls(path: Path, as_json: bool) -> None:
    """List the holders of tokens. The tokens themselves are not stored."""
    from hub.identity.tokens import read

    entries = read(path)
    if as_json:
        print_json([_item(entry) for entry in entries])
        return
    if not entries:
        print_notice("no tokens: rolecall tokens new --name me --kind admin")
        return
    columns = ("id", "name", "kind", "workspace", "roles", "expires")
    print_table(
        [column.upper() for column in columns], [[str(_item(entry)[column]) for column in columns] for entry in entries]
    )


@tokens.command("revoke")
@click.argument("name")
@click.pass_obj
def revoke(path: Path, name: str) -> None:
    """Revoke one token by its id, or all tokens of a holder by NAME. It takes effect within a second."""
    from hub.identity.tokens import read
    from hub.identity.tokens import revoke as revoke_tokens

    revoked = revoke_tokens(path, name)
    if not revoked:
        raise CommandError(f"no token {name}", "TOKEN_UNKNOWN", 1, "rolecall tokens ls")
    print_notice(f"revoked: {', '.join(entry.id for entry in revoked)}")
    if not read(path):
        print_notice("it was the last one: the hub refuses every caller until there is another (rolecall tokens new)")


def _principal(name: str, kind: str, workspace: str, roles: tuple[str, ...], networks: tuple[str, ...]) -> Principal:
    from ipaddress import ip_network

    from rolecall.model.ids import is_role

    for role in roles:
        if role != "*" and not is_role(role.removesuffix("*") or "x"):
            raise CommandError(f"{role} is not a role", "USAGE", 2)
    if kind == Kind.WORKER and not roles:
        raise CommandError("a worker token needs roles", "USAGE", 2, "--role code-reviewer, or --role '*' for any")
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
