"""The tutorial, from its first step to its last, as it stands on the page."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.consoles import descendants
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import Process, free_port, wait_for
from tests.helpers.terminal import Terminal

BLOCKS = blocks_of("docs/tutorial.md")


@contextmanager
def up(shell: Shell) -> Iterator[Process]:
    with shell.process(BLOCKS["up"].strip(), "up.log") as running:
        yield running
        assert running.stop(30) == 0


def is_enrolled(console: Process, name: str) -> None:
    console.wait_until(lambda: f"{name} is enrolled at " in console.output, 40)


def test_the_ten_steps(tmp_path: Path) -> None:
    port = free_port()
    shell = Shell(tmp_path, f"http://127.0.0.1:{port}")
    shell.env |= {"ROLECALL_PORT": str(port), "HOME": str(tmp_path)}
    # The test runs with the packages that `source` would select.
    installed = shell.run(BLOCKS["install"].replace("source .venv/bin/activate", "true"))
    assert installed.returncode == 0, installed.stderr
    made = shell.run(BLOCKS["init"])
    assert made.returncode == 0, made.stdout + made.stderr
    assert BLOCKS["tested"].strip() in made.stdout
    shell.folder = folder = tmp_path / "agents"
    assert BLOCKS["shouter"] in (folder / "shouter.py").read_text()

    with up(shell) as console:
        is_enrolled(console, "shouter:1")
        assert shell.run(BLOCKS["send"]).stdout.strip() == BLOCKS["sent"].strip()
        for agent, entry in (("critic", "critic-entry"), ("planner", "planner-entry")):
            (folder / f"{agent}.py").write_text(BLOCKS[agent])
            with (folder / "agents.toml").open("a") as file:
                file.write(BLOCKS[entry])
            is_enrolled(console, f"{agent}:1")
        words = ["bash", "-c", BLOCKS["chat"]]
        with Terminal(words, env=shell.env, cwd=folder) as chat:
            chat.expect("you> ")
            chat.enter("a poem", "answer> ")
            chat.enter("yes", "a poem: lovely")
        with Terminal(["bash", "-c", BLOCKS["plan"]], env=shell.env, cwd=folder) as plan:
            plan.expect("answer> ")
            plan.press("yes\r")
            assert plan.wait(30) == 0
            assert BLOCKS["planned"].strip() in plan.text
        listed_tasks, show = BLOCKS["ls"].strip().splitlines()
        rows = shell.run(listed_tasks).stdout.splitlines()
        planner = next(row.split()[0] for row in rows if " planner " in row)
        shown = shell.run(show.replace("TASK_ID", planner[-4:]))
        assert shown.returncode == 0, shown.stderr
        assert planner in shown.stdout
        _break(shell, console)


def _break(shell: Shell, console: Process) -> None:
    answers: list[str] = []
    sender = threading.Thread(target=lambda: answers.append(shell.run(BLOCKS["long"]).stdout))
    sender.start()
    wait_for(lambda: "working" in shell.run("rolecall tasks ls --role shouter --limit 1").stdout)
    (process,) = re.findall(r"rolecall serves at .*; process (\d+)\)$", console.output, re.MULTILINE)
    assert int(process) in descendants(console.pid)
    assert shell.run(BLOCKS["kill"].replace("PROCESS", process)).returncode == 0
    sender.join(40)
    words = re.findall(r'"(.+)"', BLOCKS["long"])[0]
    assert [answer.strip() for answer in answers] == [words.upper()]
