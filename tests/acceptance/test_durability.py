"""Nothing that a client got is lost: the hub is killed under load, its files are read from outside, the power is cut."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump
from tests.acceptance.syncs import careless
from tests.acceptance.syncs.checker import files_after, files_after_failure, first_sent, sent_before_sync
from tests.acceptance.syncs.record import NEVER, Call, Kind, build_library, read_calls, record_command
from tests.acceptance.syncs.stored import PARTS, lost, read_still, words_in
from tests.acceptance.syncs.words import WORD, word
from tests.helpers.client import Reader, get_task, send, texts
from tests.helpers.processes import ROLECALL, HubProcess, Process, start_hub, start_worker, wait_for
from tests.helpers.waiting import until_still

WORKERS = "tests.acceptance.syncs.workers"


def hub_on(data_dir: Path, *, port: int = 0, argv: Sequence[str] = ()) -> HubProcess:
    return start_hub(data_dir, port=port, argv=argv, lease_ttl=4, heartbeat=0.5, worker_silence=5)


class RepeatedSender:
    """Sends messages one after the other from a thread, and keeps every answer."""

    def __init__(self, hub: str) -> None:
        self.answers: list[dict[str, Any]] = []
        self._hub = hub
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            try:
                answer = send(self._hub, "echo", f"call {len(self.answers)}", timeout=5)
            except (httpx.HTTPError, ValueError):
                continue
            if answer.get("kind") == "task":
                self.answers.append(answer)


def test_every_event_sent_to_a_client_survives_three_kills_of_the_hub(tmp_path: Path) -> None:
    _kill_under_load(tmp_path, kill_count=3)


@pytest.mark.soak
def test_every_event_sent_to_a_client_survives_twenty_kills_of_the_hub(tmp_path: Path) -> None:
    _kill_under_load(tmp_path, kill_count=20)


def _kill_under_load(tmp_path: Path, *, kill_count: int) -> None:
    rng = random.Random(32)
    hub = hub_on(tmp_path / "hub")
    with (
        _counter(hub, tmp_path),
        start_worker("tests.acceptance.workers:instant", "echo:a", hub.url, log=tmp_path / "echo.log"),
    ):
        readers = [Reader(hub.url, "counter", "count") for _ in range(32)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(reader.chunks for reader in readers))
        sender = RepeatedSender(hub.url)
        for number in range(kill_count):
            time.sleep(rng.uniform(0.05, 0.6))
            hub.kill9()
            _join(threads, 5)
            stored = read_still(hub.data_dir, tmp_path / f"death-{number}")
            assert (stored.integrity, stored.incomplete, lost(stored, readers)) == ("ok", [], [])
            hub = hub_on(hub.data_dir, port=hub.port)
            seen = _count(readers)
            threads = [reader.start_again() for reader in readers]
            wait_for(lambda seen=seen: _count(readers) > seen)  # type: ignore[misc]
        (tmp_path / "enough").touch()
        _join(threads, 20)
        sender.stop()
        with hub:
            for reader in readers:
                _check(hub, reader, rng)
            assert len(sender.answers) > kill_count
            assert [get_task(hub.url, answer["id"]) for answer in sender.answers] == sender.answers
    assert len((tmp_path / "runs").read_text().splitlines()) == len(readers)


def _counter(hub: HubProcess, tmp_path: Path) -> Process:
    env = {"RUNS": str(tmp_path / "runs"), "ENOUGH": str(tmp_path / "enough")}
    return start_worker(f"{WORKERS}:counter", "counter:a", hub.url, log=tmp_path / "counter.log", env=env)


def _count(readers: Sequence[Reader]) -> int:
    return sum(len(reader.frames) for reader in readers)


def _check(hub: HubProcess, reader: Reader, rng: random.Random) -> None:
    """The reader got everything once and in order, and a second reader gets the same from the log."""
    many = len(reader.chunks) - 1
    assert reader.chunks == [*(f"{n} " for n in range(many)), f"that was {many}"]
    assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
    assert reader.state == "completed"
    assert texts(get_task(hub.url, reader.task)) == reader.chunks
    again = Reader(hub.url, reader.role, "", task=reader.task, frames=reader.frames[: rng.randint(1, many)])
    again.come_back()
    assert again.frames == reader.frames


def test_events_sent_before_they_are_stored_are_detected(tmp_path: Path) -> None:
    """With that fault in the hub, the checks of the test above fail. The kill comes when something has been sent and its commit
    is held.
    """
    held = tmp_path / "held"
    hub = hub_on(tmp_path / "hub", argv=careless.argv("told too early", held))
    with _counter(hub, tmp_path) as worker:
        readers = [Reader(hub.url, "counter", "count") for _ in range(8)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(len(reader.chunks) > 5 for reader in readers))
        held.touch()
        until_still(lambda: _count(readers), quiet=0.5)
        hub.kill9()
        worker.kill9()
        _join(threads, 5)
    stored = read_still(hub.data_dir, tmp_path / "death")
    assert (stored.integrity, stored.incomplete) == ("ok", [])
    assert lost(stored, readers) != []


# --- the sync comes before the send

_NO_END = 1_000_000
"""More words than any test waits for: the streams end with the hub."""


@dataclass
class Recorded:
    """A hub that was killed while it worked, and every system call that it had made."""

    data_dir: Path
    calls: list[Call] = field(repr=False)
    seen: set[str] = field(repr=False)
    """The words that its clients had received."""


def _record(folder: Path, command: Sequence[str], *, words: int, until_log_restarted: bool = False) -> Recorded:
    """Streams and blocking calls at once, until every stream has that many words, and optionally until a checkpoint has
    restarted the write-ahead log. Every word is unique: those of the worker, those of its callers, and the worker's name.
    """
    folder.mkdir(exist_ok=True)
    argv = record_command(command, build_library(folder), folder / "hub", folder / "calls")
    hub = hub_on(folder / "hub", argv=argv)
    name = f"word_writer:{word()}"
    with start_worker(f"{WORKERS}:word_writer", name, hub.url, log=folder / "word_writer.log", enrolled=False) as worker:
        hub.wait_until(lambda: bool(httpx.get(f"{hub.url}/health", trust_env=False).json()["workers"]))
        readers = [Reader(hub.url, "word_writer", f"{_NO_END} {word()}") for _ in range(6)]
        threads = [reader.start() for reader in readers]
        answers = [send(hub.url, "word_writer", f"3 {word()}") for _ in range(5)]
        wait_for(lambda: all(len(reader.chunks) > words for reader in readers), 60)
        # How many words fill a log depends on how many of them share a commit, and so on the machine.
        wait_for(lambda: not until_log_restarted or _checkpoints(hub.data_dir) > 0, 60)
        hub.kill9()
        worker.kill9()
        _join(threads, 5)
    events = [event for reader in readers for event in reader.events]
    seen = {match.group().decode() for match in WORD.finditer(dump([*events, *answers]))}
    return Recorded(hub.data_dir, read_calls(folder / "calls", hub.pid), seen)


def _checkpoints(data_dir: Path) -> int:
    """How often the write-ahead log was restarted: its header counts that."""
    with (data_dir / PARTS[1]).open("rb") as log:
        return int.from_bytes(log.read(16)[12:])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return _record(tmp_path_factory.mktemp("recorded"), (*ROLECALL, "serve"), words=200, until_log_restarted=True)


def test_the_record_of_calls_is_whole(recorded: Recorded) -> None:
    """Replayed, it gives the files as they are, except for an interrupted call. It has everything that clients got."""
    ended = files_after(call for call in recorded.calls if call.ended < NEVER)
    begun = files_after(recorded.calls)
    for part in PARTS:
        assert (recorded.data_dir / part).read_bytes() in (ended[part], begun[part])
    assert len(recorded.seen) > 6 * 200
    log_starts = [
        call for call in recorded.calls if call.kind is Kind.WRITE and call.file.endswith(b"-wal") and call.place == 0
    ]
    assert len(log_starts) > 1, "there was no checkpoint"
    assert recorded.seen <= first_sent(recorded.calls).keys()


def test_nothing_is_sent_before_it_is_synced(recorded: Recorded) -> None:
    """Not to a client, not to a worker, and not in the answer to an enrolment."""
    assert sent_before_sync(recorded.calls) == {}


def test_a_power_cut_loses_nothing_that_was_sent(recorded: Recorded, tmp_path: Path) -> None:
    """Cuts at the kill and just after a send. Of what was not synced, everything or a random part is lost."""
    rng = random.Random(2)
    sent = first_sent(recorded.calls)
    for cut in [NEVER, *(begun + 1 for begun in rng.sample(sorted(set(sent.values())), 15))]:
        for rng_of_cut in (None, rng):
            integrity, kept = _after_cut(recorded, cut, rng_of_cut, tmp_path / f"{cut} {rng_of_cut is None}")
            assert integrity == "ok"
            assert {sent_word for sent_word, begun in sent.items() if begun < cut} <= kept


@pytest.mark.parametrize("fault", careless.FAULTS)
def test_a_hub_that_sends_before_it_has_synced_is_detected(tmp_path: Path, fault: str) -> None:
    """The power is cut just after a word was sent too early: at the kill, all that was sent may have been synced meanwhile."""
    recorded = _record(tmp_path, careless.argv(fault, tmp_path / "held"), words=20)
    sent, early = first_sent(recorded.calls), sent_before_sync(recorded.calls)
    assert early != {}
    cut = max(sent[word] for word in early) + 1
    _, kept = _after_cut(recorded, cut, None, tmp_path / "cut")
    assert not {word for word, begun in sent.items() if begun < cut} <= kept


def _after_cut(recorded: Recorded, cut: int, rng_of_cut: random.Random | None, folder: Path) -> tuple[str, set[str]]:
    folder.mkdir()
    files = files_after_failure(recorded.calls, cut, rng_of_cut)
    for part in PARTS:
        if part in files:
            (folder / part).write_bytes(files[part])
    return words_in(folder / PARTS[0])


def _join(threads: Sequence[threading.Thread], timeout: float) -> None:
    """Join all threads within `timeout` seconds in total."""
    until = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        assert not thread.is_alive()
