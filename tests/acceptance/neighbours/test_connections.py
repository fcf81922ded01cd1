"""Connections to workers, and the descriptors of the hub's process, are held: one workspace that takes all it can get, asks
again as soon as it is refused, or has a worker that never answers leaves the other its part, and leaves nothing behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.acceptance.loadclients import memory_used
from tests.acceptance.neighbours.load import ROLE, line_of, start_agent, start_callers
from tests.acceptance.neighbours.rig import BUSY, Neighbours, neighbours
from tests.helpers.processes import Process

OPERATOR = "operator-" + 32 * "x"
_SETTINGS = {"worker_silence": 3600, "keep_alive": 600, "max_at_once": 0, "max_rate": 0, "admin_token": OPERATOR}


@contextmanager
def with_silent_worker(folder: Path, **settings: object) -> Iterator[Neighbours]:
    """The busy workspace has one worker, whose streams stay silent after their first event."""
    with neighbours(folder, **{**_SETTINGS, **settings}) as pair:
        agent, url = start_agent(folder / "agent.log")
        with agent:
            offer = {"url": url, "boot": "b", "capabilities": {"streaming": True}, "ttl_seconds": 3600}
            answer = pair.ask(BUSY, "PUT", f"/registry/agents/{ROLE}/a", offer, kind="worker")
            assert answer.status_code == 201, answer.text
            yield pair


def callers(pair: Neighbours, *words: object) -> Process:
    kind, *rest = words
    log = pair.folder / f"{kind}.log"
    return start_callers(log, kind, pair.hub.port, *rest, token=pair.tokens[BUSY, "client"])


def share(pair: Neighbours, thing: str, what: str) -> float:
    text = pair.http.get(f"{pair.hub.url}/metrics", headers={"Authorization": f"Bearer {OPERATOR}"}).text
    found = re.search(rf'^a2a_hub_share_{what}{{thing="{thing}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def check_storm(pair: Neighbours, held: int, refusals: int, at_once: int, growth: float, timeout: float) -> str:
    """So many calls are refused because the workspace's connections are used up: the hub is hardly larger afterwards."""
    with ExitStack() as closing:
        kept = closing.enter_context(callers(pair, "hold", held))
        assert line_of(kept, 60) == {"open": held, "refused": {}}
        closing.enter_context(callers(pair, "storm", 500, at_once)).wait(60)  # what the process needs for that many at once
        (pair.folder / "storm.log").unlink()
        before = memory_used(pair.hub)
        storm = closing.enter_context(callers(pair, "storm", refusals, at_once))
        answer = line_of(storm, timeout)
        after = memory_used(pair.hub)
    (text,) = answer["refused"]
    assert "ROLECALL_MAX_WORKER_CONNECTIONS_PER_WORKSPACE" in text
    assert ROLE not in text
    assert (answer["open"], answer["refused"][text] >= refusals) == (0, True)
    figures = f"{answer['refused'][text]} refusals: {after - before:+.0f} MB"
    assert after - before <= growth, figures
    return figures


@pytest.mark.timeout(120)
def test_a_storm_of_refused_calls_leaves_nothing_behind(tmp_path: Path) -> None:
    held = 50
    settings = {"max_worker_connections": 200, "max_worker_connections_per_workspace": held}
    with with_silent_worker(tmp_path, **settings) as pair, pair.unharmed():
        print(check_storm(pair, held, refusals=20_000, at_once=200, growth=5, timeout=60))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_hundred_thousand_refused_calls_leave_nothing_behind(tmp_path: Path) -> None:
    held = 1_000
    settings = {"max_worker_connections": 2_000, "max_worker_connections_per_workspace": held}
    with with_silent_worker(tmp_path, **settings) as pair:
        idle = pair.idle()
        with pair.unharmed() as harm:
            print("\n" + check_storm(pair, held, refusals=200_000, at_once=50, growth=50, timeout=500))
        print(harm.check_latency(idle))


def check_silent_streams(pair: Neighbours, count: int, seconds: float, limit: float = 40) -> str:
    """So many streams to one worker are open, and still are after these seconds."""
    with ExitStack() as closing:
        before = memory_used(pair.hub)
        kept = closing.enter_context(callers(pair, "hold", count, seconds))
        assert line_of(kept, 120) == {"open": count, "refused": {}}
        size = (memory_used(pair.hub) - before) * 1024 / count
        assert share(pair, "connections to workers", "largest") == count
        kept.wait(60)
        assert json.loads(kept.output.splitlines()[1])["open"] == count
    figures = f"{count} silent streams at one worker: {size:.0f} KiB each"
    assert size <= limit, figures
    return figures


def test_silent_streams_at_one_worker_are_held(tmp_path: Path) -> None:
    with with_silent_worker(tmp_path, worker_silence=4) as pair, pair.unharmed():
        print(check_silent_streams(pair, 500, seconds=8))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_five_thousand_silent_streams_at_one_worker_are_held(tmp_path: Path) -> None:
    with with_silent_worker(tmp_path, worker_silence=10, max_connections=7_000) as pair, pair.unharmed(memory=250):
        print("\n" + check_silent_streams(pair, 5_000, seconds=25))
