"""A request for another caller's data runs the same statements as one for data that does not exist."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hub.app import Rolecall, create_app, parts_of
from hub.inbound.a2a.operations import CallHeaders, OperationCall, Operations
from hub.settings.model import Settings
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import HubError
from rolecall.model.command import Target
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Offer
from rolecall.protocol.dialects import read_method
from rolecall.protocol.methods import STREAMING
from rolecall.protocol.text.jsontext import parse
from tests.acceptance.access_table import METHODS
from tests.flow.conftest import say
from tests.helpers.scripted import ScriptedForwarder, status, task

pytestmark = pytest.mark.real_time
ANNA = Caller("default", "anna")
OTHER_WORKSPACE = Caller("acme", "anna")
OTHER_CALLERS = [Caller("default", "bert"), OTHER_WORKSPACE]
UNKNOWN = "01a1efaa-0000-7000-8000-000000000000"
_CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|x'[0-9a-f]{32}'|\b\d+(\.\d+)?(e[+-]?\d+)?\b", re.IGNORECASE)
_NOT_THE_CALLERS = re.compile(r"select (host|workspace) from delivery|begin|commit", re.IGNORECASE)
"""Statements of the deliveries, and of commits."""


@dataclass
class Store:
    rolecall: Rolecall
    seen: list[str] = field(default_factory=list)

    async def watch(self) -> None:
        engine = self.rolecall.engine
        assert isinstance(engine, SqliteEngine)
        reader = engine._reader._db
        assert reader is not None
        await reader.set_trace_callback(self.seen.append)
        await engine.writer.submit(lambda db: db.set_trace_callback(self.seen.append))

    async def asked(self, work: Callable[[], Awaitable[object]]) -> list[str]:
        """The statements of `work`, which is refused; without ids and numbers."""
        self.seen.clear()
        with pytest.raises(HubError):
            await work()
        return [_CHANGING.sub("~", text) for text in self.seen if not _NOT_THE_CALLERS.match(text)]

    async def task(self, caller: Caller) -> str:
        body = parse((await self.rolecall.hub.send(caller, say("hi"))).body)
        return str(body["id"])


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    forwarder = ScriptedForwarder()
    forwarder.plan("echo:a", task(), status("input-required"))
    settings = Settings(data_dir=folder, push_allowed_hosts=("127.0.0.1",))
    app = create_app(settings, port=1, wrap=lambda parts: replace(parts, forwarder=forwarder))
    async with app.test_app():
        rolecall = parts_of(app)
        offer = Offer(WorkerId("echo", "a"), "http://127.0.0.1:9/", streaming=True, card={"name": "echo"})
        await rolecall.directory.enrol(LOCAL, offer, boot="b")
        yield Store(rolecall)


REFUSED = [(method, kind) for method, row in METHODS.items() for kind, way in row.names.items() if way.others == "-32001"]


def request_of(store: Store, caller: Caller, method: str, params: dict[str, Any]) -> Callable[[], Awaitable[object]]:
    operation, choice = read_method(method, None)
    operations = Operations(store.rolecall.hub, store.rolecall.push, _no_card)
    call = OperationCall(caller, operation, choice, params, Target(path_role="echo"), CallHeaders())
    return lambda: operations.open(call) if operation in STREAMING else operations.answer(call)


def _no_card(caller: Caller, role: str | None, dialect: str) -> bytes:
    raise AssertionError("a card is not the store's")


@pytest.mark.parametrize("cached", [True, False], ids=["in memory", "on disk"])
async def test_a_method_runs_the_same_statements_for_another_callers_task_and_an_unknown_one(
    tmp_path: Path, cached: bool
) -> None:
    async with opened(tmp_path) as first:
        anna = await first.task(ANNA)
        if cached:
            await _compare_all(first, anna)
    if not cached:
        async with opened(tmp_path) as second:
            await _compare_all(second, anna)


async def _compare_all(store: Store, anna: str) -> None:
    await store.watch()
    for method, kind in REFUSED:
        if kind == "config":
            continue  # the task is the caller's own
        way = METHODS[method].names[kind]
        for caller in OTHER_CALLERS:
            foreign = await store.asked(request_of(store, caller, method, way.params(anna, "-")))
            unknown = await store.asked(request_of(store, caller, method, way.params(UNKNOWN, "-")))
            assert foreign == unknown, method
            assert foreign, f"{method} asks the store"


async def test_a_dead_letter_of_another_workspace_runs_the_same_statements_as_an_unknown_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        anna = await store.task(ANNA)
        await store.watch()
        push = store.rolecall.push
        foreign = await store.asked(partial(push.redeliver, OTHER_WORKSPACE, TaskId(anna), "c", Cursor(1)))
        unknown = await store.asked(partial(push.redeliver, OTHER_WORKSPACE, TaskId(UNKNOWN), "c", Cursor(1)))
        assert foreign == unknown != []
