"""What `--reload` replaces, in which order, and what it leaves alone: scripted children, loads and a scripted hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.cli.console.programs import Program
from rolecall.cli.console.reloading import reload as module
from rolecall.cli.console.reloading.loading import Load
from rolecall.cli.console.reloading.reload import Reload
from rolecall.cli.console.runners import Runners
from rolecall.errors import ConfigError

LOADS = Load("shouter", "")


class ScriptedWorker:
    """Ends when it is asked to, after `drain` seconds."""

    def __init__(self, drain: float) -> None:
        self._drain = drain
        self.ended = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return int(await self.ended)

    def ask_to_end(self) -> None:
        asyncio.get_running_loop().call_later(self._drain, self.end, 0)

    def kill(self) -> None:
        self.end(-9)

    def end(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)


class Stage:
    """Programs that run, a hub that knows which of them are ready, and a file of programs that changes.

    `news`: starts, ends and reports, in their order. `loads`: what the next loads say; after that all load. `comes_back`:
    whether a worker that starts again is soon ready.
    """

    def __init__(self, folder: Path) -> None:
        self.news: list[str] = []
        self.loads: list[Load] = []
        self.file = folder / "agents.toml"
        self.file.write_text("1")
        self.module = folder / "shouter.py"
        self.module.write_text("1")
        self.programs: list[Program] = [self.program("shouter:1"), self.program("shouter:2"), self.program("planner:1")]
        self.wrong = ""
        self.comes_back = True
        self.drain = 0.0
        self.least_ready = 9
        self.lists: list[list[str]] = []
        self.running: dict[str, ScriptedWorker] = {}
        self._epochs: dict[str, int] = {}
        self.ready: set[str] = set()

    def program(self, name: str, *words: str, enrols: bool = True) -> Program:
        entry = name.partition(":")[0]
        files = [self.module] if entry == "shouter" else []
        check = ("load", entry) if enrols else ()
        return Program(
            name,
            (entry, *words),
            self.file.parent,
            {},
            instance=name,
            enrols=enrols,
            entry=entry,
            check=check,
            sources=_Files(files),
        )

    async def start(self, program: Program) -> ScriptedWorker:
        first = program.name not in self._epochs
        self.news.append(f"start {' '.join((program.name, *program.argv[1:]))}")
        child = self.running[program.name] = ScriptedWorker(self.drain)
        self._epochs[program.name] = self._epochs.get(program.name, 0) + 1
        if first or self.comes_back:
            asyncio.get_running_loop().call_later(0.05, self.ready.add, program.name)
        asyncio.create_task(self._leave(program.name, child), name=f"end of {program.name}")  # noqa: RUF006
        return child

    async def _leave(self, name: str, child: ScriptedWorker) -> None:
        await asyncio.wait([child.ended])
        self.ready.discard(name)
        self.least_ready = min(self.least_ready, len([one for one in self.ready if one.startswith("shouter")]))
        self.news.append(f"end {name}")

    async def epoch_of(self, program: Program) -> object:
        return self._epochs[program.name] if program.enrols and program.name in self.ready else None

    async def load(self, words: Sequence[str], cwd: Path, env: object) -> Load:
        self.news.append(" ".join(words))
        return self.loads.pop(0) if self.loads else LOADS

    def read(self) -> Sequence[Program]:
        if self.wrong:
            raise ConfigError([self.wrong])
        return self.programs

    def change(self, path: Path) -> None:
        path.write_text(path.read_text() + "1")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - files are watched by polling
                await asyncio.sleep(0.01)

    async def expect_news(self, *news: str) -> None:
        await self.until(lambda: len(self.news) >= len(news))
        await asyncio.sleep(0.1)
        assert self.news == list(news)
        self.news.clear()


class _Files(list[Path]):
    def __call__(self) -> list[Path]:
        return list(self)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_POLL", 0.02), ("_BACK_POLL", 0.01), ("_PATIENCE", 0.3)):
        monkeypatch.setattr(module, name, seconds)


@asynccontextmanager
async def watched(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(module, "load", stage.load)
    runners = Runners(stage.start, stage.news.append)
    for program in stage.programs:
        runners.keep_running(program, reload=True)
    await stage.until(lambda: len(stage.ready) == len(stage.programs))
    stage.news.clear()
    reload = Reload(
        runners,
        stage.news.append,
        stage.epoch_of,
        file=stage.file,
        read=stage.read,
        on_programs=lambda programs: stage.lists.append([one.name for one in programs]),
    )
    task = asyncio.create_task(reload.run(stage.programs))
    await asyncio.sleep(0.05)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()
        await runners.end(list(runners))


AGAIN = [f"shouter:{copy} starts again: shouter.py has changed" for copy in (1, 2)]


async def test_the_new_version_is_loaded_and_copies_follow_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.drain = 0.1
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        await stage.expect_news(
            "load shouter",
            *(AGAIN[0], "end shouter:1", "start shouter:1"),
            *(AGAIN[1], "end shouter:2", "start shouter:2"),
        )
        assert stage.least_ready == 1


async def test_while_the_new_version_does_not_load_the_one_before_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.loads.append(Load("", "error: shouter:worker cannot be loaded:\nSyntaxError: invalid syntax (shouter.py, line 9)"))
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        await stage.expect_news(
            "load shouter",
            "shouter.py has changed, and cannot be used for shouter:1; the version before goes on:",
            "  error: shouter:worker cannot be loaded:",
            "  SyntaxError: invalid syntax (shouter.py, line 9)",
        )
        stage.change(stage.module)
        await stage.until(lambda: stage.news[-1:] == ["start shouter:2"])


async def test_a_copy_that_does_not_come_back_leaves_the_others_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.comes_back = False
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        left = "shouter:1 has not come back to the hub; not replaced: shouter:2"
        await stage.expect_news("load shouter", AGAIN[0], "end shouter:1", "start shouter:1", left)
        stage.comes_back = True
        stage.change(stage.module)
        await stage.until(lambda: stage.news[-1:] == ["start shouter:2"])


async def test_a_program_of_which_nobody_knows_whether_it_enrols_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.programs = [stage.program(f"shouter:{copy}", enrols=False) for copy in (1, 2)]
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        await stage.expect_news(AGAIN[0], "end shouter:1", "start shouter:1", AGAIN[1], "end shouter:2", "start shouter:2")


async def test_one_that_was_left_stopped_starts_again_when_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.programs = [replace(stage.program("shouter:1"), final={3: "no"})]
    async with watched(stage, monkeypatch):
        stage.running["shouter:1"].end(3)
        left = "shouter:1 ended with code 3: no; it is left stopped; a change of its files starts it"
        await stage.expect_news("end shouter:1", left)
        stage.loads.append(Load("", "no"))
        stage.change(stage.module)
        cannot = "shouter.py has changed, and cannot be used for shouter:1; it stays stopped:"
        await stage.expect_news("load shouter", cannot, "  no")
        stage.change(stage.module)
        await stage.expect_news("load shouter", AGAIN[0], "start shouter:1")


async def test_what_is_new_in_the_file_starts_and_what_is_gone_ends_and_the_rest_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with watched(stage, monkeypatch):
        stage.programs = [*stage.programs[:2], stage.program("shouter:3"), stage.program("counter:1")]
        stage.change(stage.file)
        await stage.until(lambda: len(stage.news) == 6)
        assert sorted(stage.news) == [
            "counter:1 starts: agents.toml has changed",
            "end planner:1",
            "planner:1 ends: it is no longer in agents.toml",
            "shouter:3 starts: agents.toml has changed",
            "start counter:1",
            "start shouter:3",
        ]
        assert stage.lists == [["shouter:1", "shouter:2", "shouter:3", "counter:1"]]
        stage.news.clear()
        stage.programs = [stage.programs[0]]
        stage.change(stage.file)
        await stage.until(lambda: len(stage.news) == 6)
        assert set(stage.running) - {news.partition(" ")[2] for news in stage.news} == {"shouter:1", "planner:1"}


async def test_an_entry_that_changed_is_loaded_and_its_copies_follow_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with watched(stage, monkeypatch):
        before = stage.programs
        prompt = tmp_path / "prompt.txt"
        prompt.write_text("1")
        fast = [stage.program(f"shouter:{copy}", "fast") for copy in (1, 2)]
        stage.programs = [*(replace(program, sources=_Files([prompt])) for program in fast), before[2]]
        stage.loads.append(Load("", "no module"))
        stage.change(stage.file)
        cannot = "agents.toml has changed, and cannot be used for shouter:1; the version before goes on:"
        await stage.expect_news("load shouter", cannot, "  no module")
        stage.change(stage.file)
        again = [f"shouter:{copy} starts again: agents.toml has changed" for copy in (1, 2)]
        await stage.expect_news(
            "load shouter",
            *(again[0], "end shouter:1", "start shouter:1 fast"),
            *(again[1], "end shouter:2", "start shouter:2 fast"),
        )
        stage.change(prompt)
        await stage.until(lambda: stage.news[-1:] == ["start shouter:2 fast"])


async def test_a_module_that_changes_with_the_file_is_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    async with watched(stage, monkeypatch):
        stage.programs = [*stage.programs, stage.program("shouter:3")]
        stage.change(stage.file)
        stage.change(stage.module)
        await stage.until(lambda: {"start shouter:1", "start shouter:2", "start shouter:3"} <= set(stage.news))


async def test_a_change_of_the_file_waits_for_a_replacement_that_is_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.drain = 0.2
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        await stage.until(lambda: AGAIN[0] in stage.news)
        stage.programs = [*stage.programs, stage.program("shouter:3")]
        stage.change(stage.file)
        await stage.until(lambda: "start shouter:3" in stage.news)
        assert stage.news.index("start shouter:2") < stage.news.index("start shouter:3")
        assert stage.least_ready == 1


async def test_a_change_that_did_not_load_and_is_taken_back_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with watched(stage, monkeypatch):
        before = stage.programs
        stage.programs = [stage.program("shouter:1", "fast"), *before[1:]]
        stage.loads.append(Load("", "no module"))
        stage.change(stage.file)
        await stage.until(lambda: stage.news[-1:] == ["  no module"])
        stage.programs = before
        stage.change(stage.file)
        await stage.until(lambda: "nothing in it that runs" in stage.news[-1])
        stage.change(stage.module)
        await stage.until(lambda: "start shouter:2" in stage.news)
        assert "start shouter:1" in stage.news


async def test_a_file_that_is_wrong_changes_nothing_and_one_that_says_the_same_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with watched(stage, monkeypatch):
        stage.wrong = "agents.toml:3: unknown key"
        stage.change(stage.file)
        await stage.expect_news("agents.toml has changed, and is not used: what runs goes on", "  agents.toml:3: unknown key")
        stage.wrong = ""
        stage.change(stage.file)
        await stage.expect_news(
            "agents.toml has changed, and nothing in it that runs ([hub] and [console] are read at the start)"
        )


async def test_entries_of_one_role_are_not_replaced_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.drain = 0.1
    both = [stage.program(name) for name in ("shouter:1", "shouter:2", "shouter-b:1", "shouter-b:2")]
    stage.programs = [replace(program, sources=_Files([stage.module])) for program in both]
    async with watched(stage, monkeypatch):
        stage.change(stage.module)
        await stage.until(lambda: sum(news.startswith("start ") for news in stage.news) == 4)
        turns = [news for news in stage.news if news.startswith(("start ", "end "))]
        assert [news.partition(" ")[0] for news in turns] == ["end", "start"] * 4
