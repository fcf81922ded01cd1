"""People who talk to agents on a real terminal: `chat` and `inbox`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROLECALL, HubProcess, environment, start_hub, start_worker
from tests.helpers.terminal import Terminal

COUNTER = """
from rolecall import Status, Worker

worker = Worker("counting")


@worker.on_message
async def count(text: str):
    for step in range(1, 5):
        yield Status(f"step {step}", done=step, total=4)
    yield "counted"


worker.run()
"""
SENDS_BACK = """
from rolecall import File, Worker

worker = Worker("returner")


@worker.on_message
async def copy(file: File):
    yield file


worker.run()
"""
DEMOS = ("echo", "storyteller", "booking")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("talking")
    with start_hub(folder / "hub") as hub:
        workers = [
            start_worker(f"rolecall.cli.demo:{demo}", f"{demo}:one", hub.url, log=folder / f"{demo}.log") for demo in DEMOS
        ]
        yield hub
        for worker in workers:
            worker.end()


def in_pipe(hub: HubProcess, *words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    env = environment({"ROLECALL_HUB": hub.url})
    return subprocess.run([*ROLECALL, *words], input=lines, env=env, capture_output=True, text=True, timeout=60, check=False)


def chat(hub: HubProcess, role: str, *words: str, columns: int = 100, term: str = "xterm") -> Terminal:
    return Terminal([*ROLECALL, "chat", role, *words], env={"ROLECALL_HUB": hub.url}, columns=columns, term=term)


@pytest.mark.parametrize(("columns", "term"), [(60, "xterm"), (200, "dumb")])
def test_a_question_in_a_chat_is_answered_with_the_next_line_and_taken_up_later(
    hub: HubProcess, columns: int, term: str
) -> None:
    with chat(hub, "booking", columns=columns, term=term) as first:
        first.expect("you> ")
        first.enter("a table", "answer> ")
        first.enter("yes", "Booked: a table.")
        first.enter("a room", "answer> ")
        first.press("\x04")
        assert first.wait() == 0
        context = re.findall(r"--context-id ([0-9a-f-]{36})", first.text)[-1]
        assert ("\x1b[" in first.output) == (term == "xterm")
    with chat(hub, "booking", "--context-id", context, columns=columns, term=term) as second:
        second.expect("answer> ")
        assert re.findall("^you> (.*)$", second.text, re.MULTILINE) == ["a table", "yes", "a room"]
        second.enter("yes", "Booked: a room.\nyou> ")
        second.enter("/tasks", "you> ")
        assert second.text.count("completed") == 2
        second.enter("/quit", "take it up again")
        assert second.wait() == 0


def test_ctrl_c_cancels_the_answer_and_the_chat_goes_on(hub: HubProcess) -> None:
    with chat(hub, "storyteller") as terminal:
        terminal.expect("you> ")
        terminal.enter("a cat", "nobody had asked")
        terminal.press("\x03")
        terminal.expect("canceled")
        terminal.enter("/tasks", "you> ")
        terminal.enter("a dog", "The end.\nyou> ")
        terminal.press("\x03")
        terminal.expect("(Ctrl-D leaves)")
        terminal.press("\x04")
        assert terminal.wait() == 0


def test_commands_of_a_chat(hub: HubProcess, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("in the file")
    with chat(hub, "echo") as terminal:
        terminal.expect("you> ")
        terminal.enter("/help", "/file PATH")
        terminal.enter("/nothing", "There is no /nothing.")
        terminal.enter("//slash", "\n/slash\n")
        terminal.enter("/cancel", "No task asks anything.")
        terminal.enter(f"/file {tmp_path}/missing", "cannot be read: No such file")
        terminal.enter(f"/file {tmp_path}/note.txt", "note.txt goes with the next message")
        terminal.enter("with a file", "\nwith a file\n")
    found = in_pipe(hub, "tasks", "export", "--role", "echo").stdout
    assert found.count('"name": "note.txt"') == 1


def test_without_a_terminal_each_line_is_a_message(hub: HubProcess) -> None:
    done = in_pipe(hub, "chat", "echo", lines="one\n\ntwo\n")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    done = in_pipe(hub, "chat", "booking", lines="a table\nno\n")
    assert done.returncode == 1
    assert done.stdout == "A table for “a table”. Shall I book it? (yes/no)\n"
    assert "✗ rejected: Nothing was booked." in done.stderr
    done = in_pipe(hub, "chat", "nobody", lines="hello\n")
    assert done.returncode == 1
    assert "[ROLE_UNKNOWN]" in done.stderr


def test_send_asks_on_a_terminal_and_sends_the_answer(hub: HubProcess) -> None:
    argv = [*ROLECALL, "send", "booking", "a table"]
    with Terminal(argv, env={"ROLECALL_HUB": hub.url}) as terminal:
        terminal.expect("answer> ")
        terminal.press("yes\r")
        assert terminal.wait() == 0
        assert terminal.text.count("Shall I book it?") == 1
        assert "Booked: a table." in terminal.text
        assert "✓ completed · booking:one" in terminal.text
    with Terminal(argv, env={"ROLECALL_HUB": hub.url}) as terminal:
        terminal.expect("answer> ")
        terminal.press("\x04")
        assert terminal.wait() == 7
    with Terminal([*argv, "--json"], env={"ROLECALL_HUB": hub.url}) as terminal:
        assert terminal.wait() == 7
        assert "answer> " not in terminal.text


def test_a_file_goes_in_and_its_answer_is_saved_without_overwriting(hub: HubProcess, tmp_path: Path) -> None:
    worker = tmp_path / "returner.py"
    worker.write_text(SENDS_BACK)
    raw = os.urandom(600_000)
    (tmp_path / "picture.png").write_bytes(raw)
    with start_worker(worker, "returner:one", hub.url, log=tmp_path / "returner.log"):
        for name in ("picture.png", "picture-2.png"):
            words = ("send", "returner", "--file", f"{tmp_path}/picture.png", "--output", f"{tmp_path}/saved")
            done = in_pipe(hub, *words)
            assert done.returncode == 0, done.stderr
            assert f"saved {tmp_path}/saved/{name}" in done.stderr
            assert (tmp_path / "saved" / name).read_bytes() == raw


def test_ctrl_c_cancels_what_was_sent(hub: HubProcess) -> None:
    with Terminal([*ROLECALL, "send", "storyteller", "a cat"], env={"ROLECALL_HUB": hub.url}) as terminal:
        terminal.expect("nobody had asked")
        terminal.press("\x03")
        assert terminal.wait() == 130
        assert "canceled " in terminal.text


def test_progress_is_a_bar_in_place_that_leaves_nothing_behind(hub: HubProcess, tmp_path: Path) -> None:
    worker = tmp_path / "counting.py"
    worker.write_text(COUNTER)
    with start_worker(worker, "counting:one", hub.url, log=tmp_path / "counting.log"):
        with Terminal([*ROLECALL, "send", "counting", "go"], env={"ROLECALL_HUB": hub.url}, columns=60) as terminal:
            assert terminal.wait() == 0
        assert "\r\x1b[K██████████░░░░░░░░░░  50%  step 2" in terminal.output
        assert "step 4\r\x1b[Kcounted" in terminal.output
        assert terminal.text.splitlines()[-2].endswith("step 4counted")
        done = in_pipe(hub, "send", "counting", "go")
        assert (done.returncode, done.stdout) == (0, "counted\n")
        assert "█" not in done.stderr


def test_the_inbox_lists_the_longest_wait_first_and_answers(hub: HubProcess) -> None:
    asked = [in_pipe(hub, "send", "booking", what) for what in ("the first", "the second")]
    assert [done.returncode for done in asked] == [7, 7]
    listed = in_pipe(hub, "inbox")
    first, second = (
        re.search(rf"([0-9a-f-]{{36}}).*\n  A table for “{what}”", listed.stdout) for what in ("the first", "the second")
    )
    assert first is not None
    assert second is not None
    assert first.start() < second.start()
    assert "booking:one · for " in listed.stdout
    short = first[1][-12:]
    answered = in_pipe(hub, "inbox", "answer", short, "yes")
    assert (answered.returncode, answered.stdout) == (0, "Booked: the first.\n")
    again = in_pipe(hub, "inbox", "answer", short, "yes")
    assert again.returncode == 1
    assert "[NOT_WAITING]" in again.stderr
    assert in_pipe(hub, "inbox", "answer", second[1], "no").returncode == 1
    left = in_pipe(hub, "inbox").stdout
    assert first[1] not in left
    assert second[1] not in left


def test_the_commands_of_the_page_run(hub: HubProcess, tmp_path: Path) -> None:
    page, shell = blocks_of("docs/howto/talk-to-agents.md"), Shell(tmp_path, hub.url)
    assert shell.run(page["send"]).returncode == 7
    listed, answer = page["inbox"].splitlines()
    assert shell.run(f"rolecall tasks rm {shell.run(listed).stdout.split()[0]}").returncode == 0
    asked = shell.run(f"echo 'a table' | {page['chat']}")
    assert asked.returncode == 7, asked.stderr
    answered = shell.run(answer.replace("TASK_ID", shell.run(listed).stdout.split()[0]))
    assert answered.stdout == "Booked: a table.\n"
    assert in_pipe(hub, "chat", "echo", lines="one\ntwo\n").stdout == "one\ntwo\n"
