"""The benchmark's arithmetic, and that a round with lost or invented calls does not count."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from hub.storage.sqlite.connections.database import migrate
from tests.bench.figures import Case, Figure, Sample, Section, cells, page_table, rows, table_of, text_table
from tests.bench.filling import fill
from tests.bench.honesty import check_counts, check_stored
from tests.bench.picture import graph_list, render
from tests.bench.rig import StoredTasks
from tests.bench.targets import PLAIN_CALLS, compared, table_of_targets

CASE = Case("plain", "send", 32, 1)
STREAM = Case("streams", "stream", 2, 4)


def answer(**changed: Any) -> dict[str, Any]:
    clean = dict.fromkeys(("bad", "broken", "hung", "repeated_ids"), 0)
    return {"begun": 10, "calls": 10, "events": 10, "complaint": "", "sample": [], **clean, **changed}


class Store(StoredTasks):
    """A store with the contents that a test gives."""

    def __init__(self, total: int, *tasks: dict[str, Any]) -> None:
        self._total = total
        self._tasks = {task["id"]: task for task in tasks}

    def total(self) -> int:
        return self._total

    def newest(self, count: int) -> list[dict[str, Any]]:
        return [{"id": task["id"], "state": task["status"]["state"], "events": task["events"]} for task in self._tasks.values()]

    def fetch(self, task: str, role: str) -> dict[str, Any]:
        return self._tasks.get(task, {"error": "not found"})


def stored(name: str = "t", state: str = "completed", events: int = 4, parts: int = 2) -> dict[str, Any]:
    return {"id": name, "status": {"state": state}, "events": events, "artifacts": [{"parts": [{}] * parts}]}


def test_a_figure_is_the_median_and_half_the_range() -> None:
    figure = Figure.of([12.0, 10.0, 8.0])
    assert figure.median_value == 10.0
    assert figure.spread == pytest.approx(0.2)


def test_ratios_are_to_each_base_in_cost_and_to_the_peer_in_rate() -> None:
    samples = {
        ("plain", "nginx"): [Sample(rate=60_000, cpu_us=15, p50_ms=1, p99_ms=2)],
        ("plain", "agent"): [Sample(rate=300, cpu_us=3000, p50_ms=1, p99_ms=2)],
        ("plain", "hub"): [Sample(rate=6_000, cpu_us=150, p50_ms=1, p99_ms=2)],
    }
    nginx, agent, hub = rows(CASE, samples, bases=("nginx", "hub"), peer="agent")
    assert (nginx.cpu_to, agent.cpu_to, hub.cpu_to) == ((1, 0.1), (200, 20), (10, 1))
    assert (nginx.rate_to_peer, agent.rate_to_peer, hub.rate_to_peer) == (200, 1, 20)
    assert cells(hub) == ["hub", "6,000 ±0%", "1.00", "2.0", "150 ±0%", "10.0×", "1.00×", "20.0×"]


def test_tables_have_a_line_for_each_row_and_name_their_unit() -> None:
    samples = {("streams", "nginx"): [Sample(1, 1, 1, 1)]}
    table = table_of(STREAM, rows(STREAM, samples, bases=("nginx",), peer="nginx"), bases=("nginx",), peer="nginx")
    assert table[0][1] == "events/s"
    assert len({len(connection) for connection in text_table(table).splitlines()}) == 1
    assert page_table(table).splitlines()[1] == "|---|---:|---:|---:|---:|---:|---:|"


def test_equal_counts_are_honest() -> None:
    assert check_counts(answer(), (10, 10), CASE) == []


@pytest.mark.parametrize(
    ("changed", "served"),
    [
        ({}, (9, 9)),
        ({"calls": 9, "events": 9}, (10, 10)),
        ({"events": 9}, (10, 10)),
        ({"repeated_ids": 1}, (10, 10)),
        ({"hung": 1}, (10, 10)),
        ({"bad": 1, "complaint": "not 200"}, (10, 10)),
        ({"broken": 1}, (10, 10)),
        ({"begun": 0, "calls": 0, "events": 0}, (0, 0)),
    ],
)
def test_a_round_with_lost_or_invented_calls_does_not_count(changed: dict[str, Any], served: tuple[int, int]) -> None:
    assert check_counts(answer(**changed), served, CASE) != []


def test_every_call_must_be_a_stored_task_with_all_its_events() -> None:
    one = answer(calls=1, sample=["t"])
    assert check_stored(one, 6, Store(7, stored()), STREAM) == []
    assert check_stored(one, 7, Store(7, stored()), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(events=3)), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(state="working")), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(parts=1)), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(name="other")), STREAM) != []


def test_a_target_is_met_missed_or_reached_with_its_stretch() -> None:
    def verdict(nginx: float, hub: float) -> str:
        values = {f"{PLAIN_CALLS}/nginx/cpu": nginx, f"{PLAIN_CALLS}/hub/cpu": hub}
        return compared([Section("plain", [], values=values)])[0].verdict

    assert [verdict(10, 30), verdict(10, 60), verdict(10, 61)] == ["stretch", "met", "missed"]
    rates = {f"{PLAIN_CALLS}/sdk-1.3/rate": 100, f"{PLAIN_CALLS}/hub/rate": 3100}
    cost, rate, *others = compared([Section("plain", [], values=rates)])
    assert (cost.verdict, rate.verdict) == ("not measured", "met")
    assert not any(other.measured for other in others)
    assert table_of_targets([rate])[1][1:] == ["≥ 30×", "≥ 60×", "31.0×", "met"]


def test_bars_of_the_picture_are_as_long_as_their_values() -> None:
    values = {f"{PLAIN_CALLS}/nginx/cpu": 12.0, f"{PLAIN_CALLS}/hub/cpu": 50.0, f"{PLAIN_CALLS}/sdk-1.3/cpu": 3000.0}
    (graph,) = graph_list(values, ("nginx", "hub", "sdk-1.3"))
    root = ElementTree.fromstring(render([graph]))
    widths = [float(row.get("width", 0)) for row in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == sorted(widths)
    assert len(widths) == 3
    assert 0 < widths[0] < widths[-1] < float(root.get("width", 0))


_SOME = {"TEXT": "x", "INTEGER": 1, "REAL": 100_000.0, "BLOB": b"{}"}


def test_copies_of_a_task_are_finished_tasks_with_events_and_times_of_their_own(tmp_path: Path) -> None:
    database = tmp_path / "hub.db"
    with closing(sqlite3.connect(database)) as db:
        migrate(db)
        columns = {row[1]: _SOME[row[2].upper()] for row in db.execute("pragma table_info(task)")}
        db.execute(f"insert into task ({', '.join(columns)}) values ({', '.join('?' * len(columns))})", [*columns.values()])
        db.execute(
            "insert into event (place, kind, state, dialect, body) values (?, 'task', 'completed', '0.3', x'7b7d')",
            ((1 << 24) + 1,),
        )
        db.commit()
    fill(database, 50)
    with closing(sqlite3.connect(database)) as db:
        counts = "select count(*), count(distinct id), count(distinct context), count(distinct idle_since) from task"
        assert db.execute(counts).fetchone() == (51, 51, 51, 51)
        assert db.execute("select count(*) from event join task on key = place >> 24").fetchone() == (51,)
        assert db.execute("select min(idle_since) > 100000 - 86400, max(idle_since) from task").fetchone() == (1, 100_000.0)
