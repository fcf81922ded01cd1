"""Which test executes which line: a pytest plugin that records it, and the record.

A test that starts a process can execute any line without being recorded; such tests are listed separately.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

FOLDER = "MUTATION_RECORD"
SOURCES = "MUTATION_SOURCES"


class Reach:
    """The record of a run of the tests."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._root = root
        self.seconds: dict[str, float] = {}
        self.starts_processes: set[str] = set()
        data = coverage.CoverageData(str(folder / "combined"))
        for record in sorted(folder.glob("lines-*")):
            one = coverage.CoverageData(str(record))
            one.read()
            data.update(one)
        for record in sorted(folder.glob("tests-*.json")):
            record_data = json.loads(record.read_text())
            self.seconds.update(record_data["seconds"])
            self.starts_processes.update(record_data["starts_processes"])
        self._data = data
        self._lines: dict[str, dict[int, list[str]]] = {}

    def of(self, file: str, lines: range) -> list[str]:
        """Tests that execute one of these lines, fastest first."""
        reached = self._of_file(file)
        found = {test for line in lines for test in reached.get(line, ()) if test}
        return self._by_time(found)

    def of_whole(self, file: str) -> list[str]:
        return self._by_time({test for tests in self._of_file(file).values() for test in tests if test})

    def _of_file(self, file: str) -> dict[int, list[str]]:
        if file not in self._lines:
            self._lines[file] = self._data.contexts_by_lineno(str(self._root / file))
        return self._lines[file]

    def _by_time(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))


class Recorder:
    """Loaded with `-p tests.mutation.reach`, in each process of xdist."""

    def __init__(self, folder: Path, sources: Sequence[str]) -> None:
        self._folder = folder
        self._seconds: dict[str, float] = defaultdict(float)
        self._processes: set[str] = set()
        self._now = ""
        self._name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}"
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"lines-{self._name}"), source=list(sources), config_file=False
        )
        self._coverage.start()
        sys.addaudithook(self._on_audit)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = item.nodeid
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._now = ""
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        record_data = {"seconds": self._seconds, "starts_processes": sorted(self._processes)}
        (self._folder / f"tests-{self._name}.json").write_text(json.dumps(record_data))

    def _on_audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._now and event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec"):
            self._processes.add(self._now)


def pytest_configure(config: pytest.Config) -> None:
    controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if FOLDER in os.environ and not controller:
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER]), os.environ[SOURCES].split(",")))
