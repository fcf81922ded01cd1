"""The benchmark's arithmetic, and that it refuses a round in which something was lost or made up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.figures import Case, Figure, Sample, cells, markdown_table, rows, table_of, text_table
from tests.bench.honesty import check_counts, check_stored
from tests.bench.proxies import Proxy
from tests.bench.rig import StoredTasks

CASE = Case("plain", "send", 32, 1)
STREAM = Case("streams", "stream", 2, 4)


def answer(**changed: Any) -> dict[str, Any]:
    clean = dict.fromkeys(("bad", "broken", "hung", "repeated_ids"), 0)
    return {"begun": 10, "calls": 10, "events": 10, "complaint": "", "sample": [], **clean, **changed}


class Store(StoredTasks):
    """A store that says what a test wants it to say."""

    def __init__(self, total: int, *tasks: dict[str, Any]) -> None:
        super().__init__(Proxy("hub", 0, 0, "/"))
        self._total = total
        self._tasks = {task["id"]: task for task in tasks}

    def total(self) -> int:
        return self._total

    def newest(self) -> list[dict[str, Any]]:
        return [{"id": task["id"], "state": task["status"]["state"], "events": task["events"]} for task in self._tasks.values()]

    def fetch(self, task: str) -> dict[str, Any]:
        return self._tasks.get(task, {"error": "not found"})


def stored(name: str = "t", state: str = "completed", events: int = 4, parts: int = 2) -> dict[str, Any]:
    return {"id": name, "status": {"state": state}, "events": events, "artifacts": [{"parts": [{}] * parts}]}


def test_a_figure_is_the_median_and_half_the_range() -> None:
    figure = Figure.of([12.0, 10.0, 8.0])
    assert figure.middle == 10.0
    assert figure.spread == pytest.approx(0.2)


def test_ratios_are_to_the_floor_in_cost_and_to_the_peer_in_rate() -> None:
    samples = {
        ("plain", "nginx"): [Sample(rate=60_000, cpu_us=15, p50_ms=1, p99_ms=2)],
        ("plain", "agent"): [Sample(rate=300, cpu_us=3000, p50_ms=1, p99_ms=2)],
        ("plain", "hub"): [Sample(rate=6_000, cpu_us=150, p50_ms=1, p99_ms=2)],
    }
    nginx, agent, hub = rows(CASE, samples, floor="nginx", peer="agent", proxies=("nginx", "agent", "hub"))
    assert (nginx.cpu_to_floor, agent.cpu_to_floor, hub.cpu_to_floor) == (1, 200, 10)
    assert (nginx.rate_to_peer, agent.rate_to_peer, hub.rate_to_peer) == (200, 1, 20)
    assert cells(hub) == ["hub", "6,000 ±0%", "1.00", "2.0", "150 ±0%", "10.0×", "20.0×"]


def test_tables_have_a_line_for_each_row_and_name_their_unit() -> None:
    samples = {("streams", "nginx"): [Sample(1, 1, 1, 1)]}
    table = table_of(STREAM, rows(STREAM, samples, floor="nginx", peer="nginx", proxies=("nginx",)))
    assert table[0][1] == "events/s"
    assert len({len(line) for line in text_table(table).splitlines()}) == 1
    assert markdown_table(table).splitlines()[1] == "|---|---:|---:|---:|---:|---:|---:|"


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
def test_a_round_that_lost_or_invented_something_does_not_count(changed: dict[str, Any], served: tuple[int, int]) -> None:
    assert check_counts(answer(**changed), served, CASE) != []


def test_every_call_must_be_a_stored_task_with_all_its_events() -> None:
    one = answer(calls=1, sample=["t"])
    assert check_stored(one, 6, Store(7, stored()), STREAM) == []
    assert check_stored(one, 7, Store(7, stored()), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(events=3)), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(state="working")), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(parts=1)), STREAM) != []
    assert check_stored(one, 6, Store(7, stored(name="other")), STREAM) != []
