"""Every dialect, one line each; and which of them is meant by a version, a method's name, or a message's spelling."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from rolecall.errors import MethodNotFound, UnsupportedOperation, VersionNotSupported
from rolecall.protocol.dialect import Dialect, WorkerSide
from rolecall.protocol.methods import Operation
from rolecall.protocol.v0_1 import dialect as v0_1
from rolecall.protocol.v0_3 import dialect as v0_3
from rolecall.protocol.v1_0 import dialect as v1_0

DIALECTS: dict[str, Dialect] = {
    dialect.version: dialect
    for dialect in (
        v0_1.DIALECT,
        v0_3.DIALECT,
        v1_0.DIALECT,
    )
}
"""Oldest first."""
DEFAULT = v0_3.DIALECT.version
"""The version of callers and agents that name none."""


class Choice(NamedTuple):
    """The dialect of one call. `dialect` reads it and has its errors; `dialects` are those of the answer: see `GetTask`."""

    dialect: Dialect
    dialects: tuple[str, ...]


_VERSION = re.compile(r"(\d{1,3}\.\d{1,3})(?:\.\d{1,5})*", re.ASCII)
_MESSAGES = frozenset({Operation.SEND, Operation.STREAM})
_ON_TASKS = frozenset({Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE})


def read_version(version: str | None) -> str | None:
    """The dialect that a caller names; None: it names none. Major and minor number decide, a patch number does not. Who names
    several has to name one dialect. VersionNotSupported.
    """
    named = [text.strip() for text in (version or "").split(",") if text.strip()]
    if not named:
        return None
    found = {match[1] if (match := _VERSION.fullmatch(text)) else "" for text in named}
    dialect = found.pop()
    if found or dialect not in DIALECTS:
        raise VersionNotSupported(", ".join(named), tuple(DIALECTS))
    return dialect


@lru_cache(maxsize=256)
def read_method(name: str, version: str | None) -> tuple[Operation, Choice]:
    """The name decides. A requested version matters only for names that dialects share, but it must be a supported one.
    MethodNotFound, VersionNotSupported.
    """
    found = _named(name)
    requested = read_version(version) if version else None
    if not found:
        raise MethodNotFound(name)
    usual = _usual(found)
    operation = usual.methods[name]
    if len(found) == 1:
        return operation, Choice(usual, (usual.version,))
    for dialect in found:
        if dialect.version == requested:
            return operation, Choice(dialect, (dialect.version,))
    return operation, Choice(usual, (*(other.version for other in found if other is not usual), usual.version))


def choose_for_rest(operation: Operation, prefix: str | None, version: str | None, body: Any) -> Choice:
    """The address decides, if its prefix has a dialect; then the version. Without either, a message is recognised by its
    spelling, and a task has its own dialect; lists and configs have the dialect that their addresses were made for.
    UnsupportedOperation: it has no REST; InvalidParams, VersionNotSupported.
    """
    chosen = prefix or read_version(version)
    if chosen is None and operation in _ON_TASKS:
        return Choice(DIALECTS[DEFAULT], ())
    if chosen is not None:
        dialect = DIALECTS[chosen]
    elif operation in _MESSAGES:
        message = body.get("message")
        dialect = next(one for one in DIALECTS.values() if one.rest is not None and one.rest.matches(message))
    else:
        dialect = AT_ROOT
    if dialect.rest is None:
        others = " or ".join(one.version for one in DIALECTS.values() if one.rest is not None)
        raise UnsupportedOperation(f"A2A {dialect.version} has no REST binding. Use JSON-RPC, or version {others}.")
    if operation in _MESSAGES:
        dialect.rest.check(body)
    return Choice(dialect, (dialect.version,))


def dialect_of(method: str) -> Dialect:
    """For errors, which may occur before the call is parsed."""
    found = _named(method)
    return _usual(found) if found else DIALECTS[DEFAULT]


def method_names() -> frozenset[str]:
    return frozenset(name for dialect in DIALECTS.values() for name in dialect.methods)


def worker_side(dialect: str) -> WorkerSide:
    """KeyError: the hub does not speak it with workers."""
    side = DIALECTS[dialect].worker
    if side is None:
        raise KeyError(dialect)
    return side


def own_bindings() -> list[tuple[str, str]]:
    """What an agent of ours speaks: dialects and their bindings, the newest first."""
    newest_first = reversed(DIALECTS.values())
    return [(one.version, binding) for one in newest_first if one.worker for binding in one.worker.calls.BINDINGS]


def dialect_of_agent(version: str) -> str | None:
    """The dialect for calls to an agent whose card names this version. Minor versions of 1 are compatible; what we send in 0.3
    is also valid 0.2. None: none.
    """
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    exact = DIALECTS.get(f"{major}.{minor}")
    if exact is not None and exact.worker is not None:
        return exact.version
    if major == "1":
        return v1_0.DIALECT.version
    return v0_3.DIALECT.version if (major, minor) == ("0", "2") else None


def _named(method: str) -> list[Dialect]:
    return [dialect for dialect in DIALECTS.values() if method in dialect.methods]


def _usual(found: list[Dialect]) -> Dialect:
    """Of several that share a name."""
    return next((dialect for dialect in found if dialect.version == DEFAULT), found[0])


AT_ROOT = next(one for one in DIALECTS.values() if one.rest is not None and one.rest.AT_ROOT)
"""The dialect of REST without a prefix and a version."""
