"""Every method, address, holder and kind of id gets the documented answer. Foreign and unknown ids get the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.app import create_app
from hub.settings.model import Settings
from rolecall.protocol.dialects import method_names
from rolecall.protocol.methods import Operation
from rolecall.protocol.rest import read_route
from tests.acceptance.access_table import CAN_OWN, METHODS, OWN, PREFIXES, REST, RIGHTS, UNKNOWN_TO, Address, Named, may
from tests.acceptance.access_world import HIDDEN, HIDDEN_ROLE, OFFER, ROLE, WORKER, Ids, World, like, make_tokens, outcome, same
from tests.helpers.processes import ROOT, start_hub, start_worker

WHO = sorted(RIGHTS)
HTTP_PAGE = ROOT / "docs" / "reference" / "http.md"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("matrix")
    tokens = make_tokens(data)
    with (
        start_hub(data, max_rate=0, max_at_once=0, push_allowed_hosts="127.0.0.1") as hub,
        httpx.Client(trust_env=False, timeout=30) as http,
    ):
        found = World(hub, tokens, http)
        env = {"ROLECALL_TOKEN": tokens["worker"]}
        worker = start_worker("tests.acceptance.workers:asker", WORKER, hub.url, log=data / "w.log", env=env)
        with worker:
            found.lease("other-farm", HIDDEN_ROLE, "z")
            found.lease("rival", "rival", "r")
            yield found


# --- the tables are complete


def test_every_method_has_a_row() -> None:
    assert set(METHODS) == method_names()


@pytest.mark.parametrize("dialect", sorted(REST))
def test_every_operation_has_an_address_in_rest(dialect: str) -> None:
    base, _ = PREFIXES[dialect]
    routes = [read_route(base + row.path.partition("?")[0], row.method) for row in REST[dialect]]
    assert {place.operation for place in routes if place is not None} == set(Operation)
    assert None not in routes


async def test_every_address_of_the_hubs_own_has_a_row(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path, store="memory:"), port=1)
    async with app.test_app():
        rules = app.url_map.iter_rules()
        found = {(method, rule.rule) for rule in rules for method in (rule.methods or set()) - {"HEAD"}}
    automatic = {(method, rule) for method, rule in found if method == "OPTIONS" and (method, rule) not in OWN}
    assert found - automatic == set(OWN)


def test_the_reference_lists_every_address_and_its_right() -> None:
    documented: dict[tuple[str, str], str] = {}
    for cells, right in re.findall(r"^\| (`[A-Z]+ /.*?) \| (\w+).* \|$", HTTP_PAGE.read_text(), re.MULTILINE):
        documented |= {(method, path): right for method, path in re.findall(r"`([A-Z]+) (\S+)`", cells)}
    rules = {(method, rule.replace("<", "{").replace(">", "}")): rows[0].right for (method, rule), rows in OWN.items()}
    assert documented == rules


# --- A2A, in JSON-RPC and in REST


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_answers_as_documented(world: World, method: str, who: str) -> None:
    row = METHODS[method]
    for way in row.names.values():
        if row.right not in RIGHTS[who]:
            answer = world.rpc(who, method, way.params(like("x" * 36), "t"))
            assert outcome(answer) == UNKNOWN_TO.get(who, "403")
            continue
        if way.of == "config" and who not in CAN_OWN:
            continue  # this holder has no task that could have the config
        changes = row.right != "read"
        ids, mine = world.ids(way.of, who, fresh=way.made, changes=changes), _mine(world, who, way.of, changes=changes)

        def ask(one: str, way: Named = way, mine: str = mine) -> httpx.Response:
            return world.rpc(who, method, way.params(one, mine), _role(way.of, one))

        foreign, unknown = ask(ids.foreign), ask(ids.unknown)
        expected = way.others
        if who == "stranger" and way.made:
            expected = "ok" if method == "tasks/send" else "-32000"
            assert WORKER not in foreign.text
        assert outcome(foreign) == expected
        same(foreign, unknown, ids, made=way.made, at_work=method == "tasks/send")
        if ids.own is not None:
            _check_own(ask(ids.own), way.own, ids, way.of)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(
    ("dialect", "row"),
    [
        pytest.param(dialect, row, id=f"{dialect} {row.method} {row.path} {row.of}")
        for dialect, rows in REST.items()
        for row in rows
    ],
)
def test_an_address_of_rest_answers_as_documented(world: World, dialect: str, row: Address, who: str) -> None:
    base, headers = PREFIXES[dialect]

    def ask(one: str, mine: str) -> httpx.Response:
        body = row.body(one, mine) if row.body else None
        return world.ask(
            who, row.method, f"/agents/{_role(row.of, one)}{base}{row.path.format(id=one, mine=mine)}", body, **headers
        )

    if row.right not in RIGHTS[who]:
        assert outcome(ask(like("x" * 36), "t")) == UNKNOWN_TO.get(who, "403")
        return
    if row.of == "config" and who not in CAN_OWN:
        return
    changes = row.right != "read"
    ids, mine = world.ids(row.of, who, fresh=row.made, changes=changes), _mine(world, who, row.of, changes=changes)
    foreign, unknown = ask(ids.foreign, mine), ask(ids.unknown, mine)
    expected = "404" if who == "stranger" and row.made else row.others
    assert outcome(foreign) == expected
    same(foreign, unknown, ids, made=row.made)
    if ids.own is not None:
        _check_own(ask(ids.own, mine), row.own, ids, row.of)


def _mine(world: World, who: str, of: str, *, changes: bool) -> str:
    """A task that the configs belong to."""
    if of != "config":
        return "-"
    return str((world.task(who, "c", f"cfg-{who}") if changes else world.kept_task(who))["id"])


def _role(of: str, one: str) -> str:
    """The role in the address: the id itself where it names a role."""
    return one if of == "role" else ROLE


def _check_own(answer: httpx.Response, expected: str, ids: Ids, of: str) -> None:
    assert outcome(answer) == expected, answer.text
    assert ids.foreign not in answer.text or ids.foreign == ids.own
    if of in ("task", "context", "role") and answer.content not in (b"{}", b'{"jsonrpc":"2.0","id":7,"result":null}'):
        assert str(ids.own) in answer.text


@pytest.mark.parametrize("who", ["owner", "other", "stranger", "admin"])
@pytest.mark.parametrize("method", ["tasks/resubscribe", "SubscribeToTask"])
def test_a_cursor_gives_no_access_to_a_foreign_task(world: World, method: str, who: str) -> None:
    ids = world.ids("task", who)
    for cursor in ("1", "999"):
        answers = [world.rpc(who, method, {"id": one}, **{"Last-Event-ID": cursor}) for one in (ids.foreign, ids.unknown)]
        assert outcome(answers[0]) == "-32001"
        same(answers[0], answers[1], ids)


@pytest.mark.parametrize("who", ["other", "admin", "reader", "stranger"])
def test_lists_hold_only_the_callers_own_tasks(world: World, who: str) -> None:
    task = world.kept_task("owner")["id"]
    own = world.task(who)["id"] if who in CAN_OWN else None
    for answer in (world.rpc(who, "ListTasks", {}), world.ask(who, "GET", "/registry/tasks")):
        assert outcome(answer) == "ok"
        assert task not in answer.text
        assert own is None or own in answer.text


def test_an_operator_sees_and_cancels_and_erases_the_tasks_of_its_workspace(world: World) -> None:
    task, other = world.task("owner"), world.task("other")
    listed = world.ask("admin", "GET", "/registry/tasks?all_holders=true&state=input-required").json()["tasks"]
    found = {item["id"]: item for item in listed}
    assert [found[one["id"]]["holder"] for one in (task, other)] == ["anna", "bert"]
    assert all("question" not in item for item in listed)
    cancelled = world.ask("admin", "POST", f"/registry/tasks/{task['id']}/cancel").json()
    assert (cancelled["state"], cancelled["holder"]) == ("canceled", "anna")
    assert world.result("owner", "tasks/get", {"id": task["id"]})["status"]["state"] == "canceled"
    again = world.ask("admin", "POST", f"/registry/tasks/{task['id']}/cancel")
    assert (again.status_code, again.json()["reason"]) == (400, "TASK_NOT_CANCELABLE")
    path = f"/registry/tasks/{other['id']}"
    assert [world.ask("admin", "DELETE", path + query).status_code for query in ("", "?all_holders=true")] == [404, 200]
    assert outcome(world.rpc("other", "tasks/get", {"id": other["id"]})) == "-32001"


# --- the hub's own addresses


OWN_ROWS = [(rule, row) for rule, rows in OWN.items() for row in rows]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("rule", "row"), [pytest.param(rule, row, id=" ".join((*rule, row.of))) for rule, row in OWN_ROWS])
def test_an_address_of_the_hubs_own_answers_as_documented(world: World, rule: tuple[str, str], row: Address, who: str) -> None:
    if row.of == "feed":
        assert _feed_status(world, who, row.path) == (200 if "read" in RIGHTS[who] else int(UNKNOWN_TO[who]))
        return
    if not may(who, row.right):
        assert outcome(_ask_own(world, who, row, like("x" * 36))) == UNKNOWN_TO.get(who, "403")
        return
    if row.path == "/metrics" and who == "stranger":
        assert outcome(_ask_own(world, who, row, "-")) == "403"
        return
    ids = _own_ids(world, row, who)
    foreign, unknown = _ask_own(world, who, row, ids.foreign), _ask_own(world, who, row, ids.unknown)
    if row.of != "nothing" and not (row.of == "lease" and rule[0] in ("PUT", "POST") and "{id}/" not in row.path):
        assert outcome(foreign) == row.others
        same(foreign, unknown, ids, made=row.of == "agent cursor")
    if ids.own is not None:
        assert outcome(_ask_own(world, who, row, ids.own)) == row.own


def _own_ids(world: World, row: Address, who: str) -> Ids:
    other_workspace = who == "stranger"
    if row.of == "worker":
        unknown = f"{'x' * len(ROLE)}:a" if other_workspace else f"{'x' * len(HIDDEN_ROLE)}:z"
        return (
            Ids(HIDDEN, WORKER, unknown)
            if other_workspace
            else Ids(WORKER if "drain" not in row.path else _new_lease(world), HIDDEN, unknown)
        )
    if row.of == "lease":
        return Ids(_new_lease(world, who), HIDDEN, "x" * len(HIDDEN_ROLE) + ":z")
    if row.of == "agent cursor":
        return Ids(None, HIDDEN, "hidden:y") if not other_workspace else Ids(None, WORKER, "asker:b")
    if row.of == "letter task":
        # An operator may redeliver every dead letter of the workspace, so none of them is foreign to it.
        task = world.dead_letter("owner")
        return Ids(None, like(task) if who == "admin" else task, like(task))
    if row.of == "letter cursor":
        task = world.dead_letter("owner")
        return Ids(None, f"9999999999.0/1/{task}/c", f"9999999999.0/1/{like(task)}/c")
    if row.of.startswith("any "):  # that of another holder in the workspace is the operator's, too
        own, unknown = world.task("other"), like(world.kept_task("owner")["id"])
        return Ids(own[{"any task": "id", "any context": "contextId"}[row.of]], like(unknown), unknown)
    if row.of == "holder":
        return Ids(None, "zoe", "xyz")  # only an operator may name one
    return world.ids(row.of, who, changes=row.method == "DELETE")


def _new_lease(world: World, who: str = "worker") -> str:
    """A new lease of this holder. Its proof is kept."""
    lease = world.lease(who, "mine", f"of-{who}-{len(world.kept)}")
    world.kept["proof", lease["name"]] = {"epoch": lease["epoch"], "lease": lease["lease"]}
    return str(lease["name"])


def _ask_own(world: World, who: str, row: Address, one: str) -> httpx.Response:
    body: Any = None
    if row.method == "PUT" or (row.path, row.method) == ("/registry/agents", "POST"):
        body = {**OFFER, "name": f"mine:{one.replace(':', '')}"}
    elif row.of == "lease":
        body = world.kept.get(("proof", one), {"epoch": 1, "lease": "0" * 64})
    elif row.method == "POST":
        body = {}
    headers = {"Upload-Offset": "0"} if row.method == "PATCH" else {}
    return world.ask(who, row.method, row.path.format(id=one), body, **headers)


def _feed_status(world: World, who: str, path: str) -> int:
    token = {"none": "", "wrong": "rc_wrong"}.get(who, world.tokens.get(who, ""))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with world.http.stream("GET", world.hub.url + path, headers=headers) as answer:
        return answer.status_code
