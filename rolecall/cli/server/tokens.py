"""`rolecall tokens`: make, list and revoke tokens of clients and workers, in the hub's file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rolecall.cli.output import CommandError, print_data, print_json, print_notice, print_table
from rolecall.cli.server.settings import load_settings
from rolecall.model.ids import is_role, is_workspace
from rolecall.model.principal import Kind, Principal
from rolecall.protocol.text.timestamp import timestamp

if TYPE_CHECKING:
    from hub.identity.tokens import TokenEntry

_Command = TypeVar("_Command", bound=Callable[..., Any])
_KINDS = click.Choice([kind.value for kind in Kind])
_DAY = 86_400.0
_LONGEST_NAME = 200


class _Place(NamedTuple):
    """Where the hub's tokens are."""

    file: Path
    data_dir: Path


def _place_options(command: _Command) -> _Command:
    """They may stand before the subcommand and behind it."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--config", type=path, metavar="FILE", help="Read this, not ./rolecall.toml."),
        click.option("--data-dir", type=path, metavar="FOLDER", help="The hub's data folder. [env: ROLECALL_DATA_DIR]"),
        click.option("--tokens", type=path, metavar="FILE", help="The hub's token file. [env: ROLECALL_TOKENS]"),
    ):
        command = option(command)
    return command


def _in_place(command: Callable[..., None]) -> Callable[..., None]:
    """Make a click callback of a command, which gets the hub's place first."""

    @_place_options
    @wraps(command)
    def callback(config: Path | None, data_dir: Path | None, tokens: Path | None, **given: Any) -> None:
        from hub.identity.tokens import FILE_NAME

        before = click.get_current_context().obj
        values = {"data_dir": data_dir or before["data_dir"], "tokens": tokens or before["tokens"]}
        settings = load_settings(config or before["config"], values).settings
        command(_Place((settings.tokens or settings.data_dir / FILE_NAME).absolute(), settings.data_dir), **given)

    return callback


@click.group()
@_place_options
@click.pass_context
def tokens(context: click.Context, /, **place: Path | None) -> None:
    """Tokens of clients and workers. The hub reads the file again when it changes, without a restart."""
    context.obj = place


@tokens.command("new")
@_in_place
@click.option(
    "--name", required=True, help="Its holder. Tasks belong to the holder, with whichever of its tokens they were made."
)
@click.option("--kind", type=_KINDS, default=Kind.CLIENT.value, show_default=True)
@click.option("--workspace", default="default", show_default=True, help="The workspace that its holder can see and change.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    help="A role that a worker may enrol under; a trailing * matches any ending. For workers only.",
)
@click.option("--network", "networks", multiple=True, help="A network (CIDR) that a worker's URL must be in. For workers only.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it is valid. Default: until it is revoked.")
def new(place: _Place, /, days: float | None, **holder: Any) -> None:
    """Make a token and print it once."""
    from hub.identity.tokens import new as make
    from hub.identity.tokens import read

    principal = _principal(**holder)
    if not is_workspace(principal.workspace) and all(e.principal.workspace != principal.workspace for e in read(place.file)):
        raise CommandError(
            f"{principal.workspace!r} is no name for a workspace",
            "USAGE",
            2,
            "use lowercase letters, digits, dot, dash, underscore",
        )
    token, entry = make(place.file, principal, lasts=days * _DAY if days else None, now=time.time())
    print_notice(f"{entry.principal.kind} token {entry.id} for {entry.principal.name} in {place.file}; it is not shown again")
    print_data(token)
    _check_readable(place)


@tokens.command("ls")
@_in_place
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def ls(place: _Place, /, as_json: bool) -> None:
    """List the holders of tokens. The tokens themselves are not stored."""
    from hub.identity.tokens import read

    entries, now = read(place.file), time.time()
    if as_json:
        print_json([_item(entry, now) for entry in entries])
        return
    if not entries:
        print_notice(f"no tokens in {place.file}: rolecall tokens new --name me --kind admin")
        return
    print_notice(str(place.file), "dim")
    _print(entries, now)
    unlimited = [entry.id for entry in entries if entry.principal.kind is not Kind.WORKER and _limits(entry.principal)]
    if unlimited:
        print_notice(f"roles and networks limit workers alone: {', '.join(unlimited)} may use every role of the workspace")


@tokens.command("revoke")
@_in_place
@click.argument("name")
@click.option("--workspace", help="Only there.")
@click.option("--kind", type=_KINDS, help="Only tokens of that kind.")
@click.option(
    "--all", "several", is_flag=True, help="Also if holders of that name are in several workspaces, or of several kinds."
)
def revoke(place: _Place, /, name: str, workspace: str | None, kind: str | None, several: bool) -> None:
    """Revoke one token by its id, or all tokens of a holder by NAME. It takes effect within a second."""
    from hub.identity.tokens import SeveralHolders, read
    from hub.identity.tokens import revoke as revoke_tokens

    try:
        revoked = revoke_tokens(
            place.file, name, workspace=workspace, kind=Kind(kind) if kind is not None else None, several=several
        )
    except SeveralHolders as error:
        found = [f"{name} has more than one holder, so nothing was revoked:", *map(_in_words, error.entries)]
        hint = "name a token by its id, or add --workspace or --kind, or --all for all of them"
        raise CommandError("\n".join(found), "SEVERAL_HOLDERS", 2, hint) from error
    if not revoked:
        raise CommandError(f"no token {name} in {place.file}", "TOKEN_UNKNOWN", 1, "rolecall tokens ls")
    for entry in revoked:
        print_notice(f"revoked {_in_words(entry)}")
    print_notice(str(place.file), "dim")
    if not read(place.file):
        print_notice("it was the last one: the hub refuses every caller until there is another (rolecall tokens new)")
    _check_readable(place)


def _check_readable(place: _Place) -> None:
    """The file was changed, and now it is its reader that matters."""
    from hub.identity.tokens import kept_from

    user = kept_from(place.file, place.data_dir)
    if user is not None:
        problem = f"the hub runs as {user}, which cannot read {place.file}: it refuses every token in it"
        raise CommandError(problem, "TOKENS_UNREADABLE", 1, f"chown {user} {place.file}")


def _principal(name: str, kind: str, workspace: str, roles: tuple[str, ...], networks: tuple[str, ...]) -> Principal:
    from ipaddress import ip_network

    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise CommandError(f"a name is printable, and has at most {_LONGEST_NAME} characters", "USAGE", 2)
    for role in roles:
        if role != "*" and not is_role(role.removesuffix("*") or "x"):
            raise CommandError(f"{role} is not a role", "USAGE", 2)
    if kind == Kind.WORKER and not roles:
        raise CommandError("a worker token needs roles", "USAGE", 2, "--role code-reviewer, or --role '*' for any")
    if kind != Kind.WORKER and (roles or networks):
        hint = "to limit who may call a role, give its workers and callers a workspace of their own: --workspace"
        raise CommandError(f"--role and --network limit workers; a {kind} token has no such limit", "USAGE", 2, hint)
    try:
        found = tuple(ip_network(network) for network in networks)
    except ValueError as error:
        raise CommandError("a network is written like 10.0.0.0/8", "USAGE", 2) from error
    return Principal(name, Kind(kind), workspace, roles, found)


def _in_words(entry: TokenEntry) -> str:
    holder = entry.principal
    return f"{entry.id}, {holder.kind} token of {holder.name} in workspace {holder.workspace}"


def _limits(holder: Principal) -> list[str]:
    return [*holder.roles, *(str(network) for network in holder.networks)]


def _print(entries: Sequence[TokenEntry], now: float) -> None:
    rows = []
    for entry in entries:
        holder = entry.principal
        networks = ",".join(str(network) for network in holder.networks) or "-"
        until = "never" if entry.expires is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.expires)) + "Z"
        expires = until if entry.alive(now) else f"{until}, expired"
        rows.append((entry.id, holder.name, holder.kind, holder.workspace, ",".join(holder.roles) or "-", networks, expires))
    print_table(("ID", "NAME", "KIND", "WORKSPACE", "ROLES", "NETWORKS", "EXPIRES"), rows)


def _item(entry: TokenEntry, now: float) -> dict[str, Any]:
    """`expires` null: never."""
    holder = entry.principal
    return {
        "id": entry.id,
        "name": holder.name,
        "kind": holder.kind.value,
        "workspace": holder.workspace,
        "roles": list(holder.roles),
        "networks": [str(network) for network in holder.networks],
        "created": timestamp(entry.created),
        "expires": None if entry.expires is None else timestamp(entry.expires),
        "expired": not entry.alive(now),
    }
