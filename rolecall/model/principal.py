"""The holder of a token, and its rights."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from rolecall.model.ids import Caller

Network = IPv4Network | IPv6Network


class Kind(StrEnum):
    """The kind of a token."""

    ADMIN = "admin"
    CLIENT = "client"
    WORKER = "worker"
    READER = "reader"


class Right(StrEnum):
    """What a request needs. READ: see agents, own tasks, metrics. CALL: create, answer, cancel tasks. ENROL: hold leases.
    OPERATE: drain, redeliver, and other operations on what others own.
    """

    READ = "read"
    CALL = "call"
    ENROL = "enrol"
    OPERATE = "operate"


_RIGHTS = {
    Kind.ADMIN: frozenset(Right),
    Kind.CLIENT: frozenset({Right.READ, Right.CALL}),
    Kind.WORKER: frozenset({Right.READ, Right.ENROL}),
    Kind.READER: frozenset({Right.READ}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """`roles`: those that a worker may enrol under; a trailing `*` matches any ending. `networks`: where its URL may be; none:
    wherever the hub's policy allows. `token`: the public id of the token that was shown; empty: one that never ends, or none.
    """

    name: str
    kind: Kind
    workspace: str = "default"
    roles: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    token: str = field(default="", compare=False)
    caller: Caller = field(init=False, repr=False, compare=False)
    """What is known of the holder after authentication."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "caller", Caller(self.workspace, self.name))

    def may(self, right: Right) -> bool:
        return right in _RIGHTS[self.kind]

    def may_serve(self, role: str) -> bool:
        return self.kind is Kind.ADMIN or any(_fits(role, pattern) for pattern in self.roles)


def _fits(role: str, pattern: str) -> bool:
    return role.startswith(pattern[:-1]) if pattern.endswith("*") else role == pattern


LOCAL = Principal("local", Kind.ADMIN)
"""Every caller of a hub without tokens. Such a hub serves this machine only."""
