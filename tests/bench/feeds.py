"""What readers of the feed of tasks cost: the same tasks with nobody who watches them, and with twenty that do."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse

from tests.bench.asking import ask
from tests.bench.figures import Case, Figure, Section, number
from tests.bench.honesty import check_counts
from tests.bench.proxies import Proxy
from tests.bench.rig import Bench
from tests.bench.turns import show_progress
from tests.helpers.processes import wait_for

TITLE = "Feed of tasks: 50 tasks a second, 20 readers"
READERS = 20
_ROUNDS = 5
_SECONDS = 8.0
_CHANGES = ("admitted", "changed", "ended")
"""Of each task: its stream begins with `working`."""
_NOTE = (
    "50 streams at a time, each of a second: a Task, nine chunks, the end. In turn with no reader of the feed and with 20 of "
    "the same caller, who all get every change: admitted, working, completed. CPU time of the hub, as a share of one core."
)


@dataclass
class FeedReader:
    """Reads on a thread: the revisions in their order, and how often each kind of change came."""

    connection: HTTPConnection
    revisions: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def read(self, response: HTTPResponse) -> None:
        revision = 0
        try:
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    revision = int(value)
                elif name == "event":
                    self.revisions.append(revision)
                    self.kinds[value] += 1
        except (OSError, ValueError, AttributeError):
            pass  # it was closed


def feed_section(bench: Bench, rounds: int, seconds: float) -> Section:
    case = Case(TITLE, "stream", 50, 11, interval_us=100_000, seconds=max(seconds, _SECONDS))
    shares: dict[int, list[float]] = {0: [], READERS: []}
    rates, problems = list[float](), list[str]()
    with bench.started(["hub"]) as (hub,):
        bench.plan(case.events, case.interval_us)
        for turn in range(max(rounds, _ROUNDS)):
            for count in (0, READERS) if turn % 2 else (READERS, 0):
                show_progress(f"feed of tasks: {count} readers, round {turn + 1}")
                share, rate, found = _measured(bench, hub, case, count)
                shares[count].append(share)
                rates.append(rate)
                problems += found
    show_progress("")
    more = Figure.of(with_readers - without for without, with_readers in zip(*shares.values(), strict=True))
    table = [["", "tasks/s", "CPU % of a core"]]
    for count, found_shares in shares.items():
        figure, rate = Figure.of(found_shares), Figure.of(rates)
        table.append([f"{count} readers", number(rate.median_value), f"{figure.median_value:.1f} ±{figure.spread:.0%}"])
    table.append(["more with readers", "", f"{more.median_value:.1f} ({more.lowest:.1f} to {more.highest:.1f})"])
    return Section(TITLE, table, _NOTE, {"feed readers": more.median_value}, problems)


def _measured(bench: Bench, hub: Proxy, case: Case, count: int) -> tuple[float, float, list[str]]:
    """The hub's CPU time in per cent of a core, tasks per second, and the problems."""
    served = bench.served()
    with _readers(hub, count) as readers:
        answer = bench.load(hub, case)
        calls, events = bench.served()
        problems = check_counts(answer, (calls - served[0], events - served[1]), case)
        expected = Counter(dict.fromkeys(_CHANGES, answer["calls"]))
        try:
            wait_for(lambda: all(reader.kinds == expected for reader in readers), 5)
        except TimeoutError:
            problems.append(f"the readers of the feed got {[dict(reader.kinds) for reader in readers][:2]} of {dict(expected)}")
    if any(reader.revisions != sorted(set(reader.revisions)) for reader in readers):
        problems.append("a reader of the feed got changes twice, or not in order")
    tasks = answer["window_calls"] / answer["seconds"]
    return answer["cpu"] / answer["seconds"] * 100, tasks, [f"{count} readers of the feed: {found}" for found in problems]


@contextmanager
def _readers(hub: Proxy, count: int) -> Iterator[Sequence[FeedReader]]:
    with ExitStack() as closing:
        readers = [FeedReader(HTTPConnection("127.0.0.1", hub.port)) for _ in range(count)]
        for reader in readers:
            connection = reader.connection
            connection.request("GET", "/registry/tasks/events", headers={"Authorization": f"Bearer {hub.calls_with}"})
            response = connection.getresponse()
            if response.status != 200:
                raise SystemExit(f"The feed of tasks was answered with {response.status}.")
            thread = threading.Thread(target=reader.read, args=(response,), daemon=True)
            thread.start()
            closing.callback(thread.join, 5)
            closing.callback(connection.close)
            closing.callback(_shut, connection.sock)
        ask(hub.port, "/registry/tasks?limit=1", token=hub.calls_with)  # by then all of them follow
        yield readers


def _shut(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
