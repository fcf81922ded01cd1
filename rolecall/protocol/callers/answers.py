"""Answers to callers, in their dialect, around bytes that are already serialised."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import EventKind
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.dialect import Dialect
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.text.jsontext import dump


def wrapped(kind: EventKind, body: bytes, dialect: str) -> bytes:
    """The answer to a message, or an event of a stream."""
    return DIALECTS[dialect].answers.wrapped(kind, body)


def task_page(tasks: Sequence[bytes], *, token: str | None, size: int, total: int) -> bytes:
    """Always with all four members."""
    joined = b",".join(tasks)
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (joined, dump(token or ""), size, total)


def push_config(config: PushConfig, dialect: Dialect, alias: str = "") -> bytes:
    """A config without its secrets. `alias`: the caller's id for the task, in a dialect in which callers choose it."""
    named = config.of(TaskId(alias)) if alias and dialect.view is not None else config
    return dump(dialect.answers.push_config(named))


def push_configs(configs: Sequence[PushConfig], dialect: Dialect) -> bytes:
    return dump(dialect.answers.push_configs([dialect.answers.push_config(config) for config in configs]))
