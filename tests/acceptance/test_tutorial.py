"""The tutorial, from its first step to its last, as it stands on the page."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

from tests.acceptance.consoles import descendants
from tests.helpers.pages import Shell
from tests.helpers.processes import ROOT, Process, free_port, wait_for
from tests.helpers.terminal import Terminal

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
NAMED = re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = {name: text for language, name, text in NAMED if language != "toml"}
TABLES = [text for language, _, text in NAMED if language == "toml"]


def up(shell: Shell, roles: int) -> Process:
    (shell.folder / "up.log").unlink(missing_ok=True)
    running = shell.process(BLOCKS["up"].strip(), "up.log")
    running.wait_until(lambda: running.output.count(" is enrolled at ") >= roles, 40)
    return running


def hub_of(console: Process) -> int:
    """The process that the page's last command ends: only that of this console, as others run beside the test."""
    pattern = re.findall(r"'(.+)'", BLOCKS["kill"])[0]
    children = [pid for pid, command in descendants(console.pid).items() if pattern in command]
    assert len(children) == 1, children
    return children[0]


def test_the_ten_steps(tmp_path: Path) -> None:
    port = free_port()
    shell = Shell(tmp_path, f"http://127.0.0.1:{port}")
    shell.env |= {"ROLECALL_PORT": str(port)}
    made = shell.run(BLOCKS["init"])
    assert made.returncode == 0, made.stderr
    shell.folder = folder = tmp_path / "agents"
    assert BLOCKS["shouter"] in (folder / "shouter.py").read_text()

    with up(shell, 1) as console:
        assert shell.run(BLOCKS["send"]).stdout.strip() == BLOCKS["sent"].strip()
        assert console.stop(30) == 0

    for agent in ("critic", "planner"):
        (folder / f"{agent}.py").write_text(BLOCKS[agent])
    with (folder / "agents.toml").open("a") as file:
        file.writelines(TABLES)

    with up(shell, 3) as console:
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
        assert console.stop(30) == 0


def _break(shell: Shell, console: Process) -> None:
    answers: list[str] = []
    sender = threading.Thread(target=lambda: answers.append(shell.run(BLOCKS["long"]).stdout))
    sender.start()
    wait_for(lambda: "working" in shell.run("rolecall tasks ls --role shouter --limit 1").stdout)
    os.kill(hub_of(console), signal.SIGKILL)
    sender.join(40)
    words = re.findall(r'"(.+)"', BLOCKS["long"])[0]
    assert [answer.strip() for answer in answers] == [words.upper()]
