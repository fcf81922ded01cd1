"""Every command and file of the page about ten agents works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import free_port

BLOCKS = blocks_of("docs/howto/ten-agents-on-a-laptop.md")


_VARY = (
    (r"\d\d:\d\d:\d\d", r"[\d:]{8}"),
    (r"(?<=0\\\.1:)\d+", r"\d+"),
    (r"/home/[^;]+", r"[^;]+"),
    (r"(?<=process\\ )\d+", r"\d+"),
    (r"shouter:1\\ \w{4}\\ ", r"shouter:\d \w{4} "),
    (r"\d+\\ ms", r"\S+ m?s"),
    (r"(\\ )+\\\|", r" +\|"),
)
"""What differs from run to run, in an escaped line, and what stands for it in the pattern."""


def _pattern(line: str) -> str:
    pattern = re.escape(line)
    for shown, any_of_it in _VARY:
        pattern = re.sub(shown, any_of_it.replace("\\", r"\\"), pattern)
    return f"^{pattern}$"


def test_ten_agents_run_as_the_page_says(tmp_path: Path) -> None:
    port = free_port()
    shell = Shell(tmp_path, f"http://127.0.0.1:{port}")
    shell.env |= {"ROLECALL_PORT": str(port)}
    made = shell.run(BLOCKS["init"])
    assert made.returncode == 0, made.stderr
    (tmp_path / "agents" / "agents.toml").write_text(BLOCKS["file"])
    (tmp_path / "agents" / "counter.py").write_text(BLOCKS["counter"])
    checked = shell.run(BLOCKS["check"])
    assert (checked.returncode, checked.stdout.count("FAIL")) == (0, 0), checked.stdout
    with shell.process(BLOCKS["up"].strip(), "up.log") as up:
        up.wait_until(lambda: "Next, in another terminal:" in up.output, 40)
        prefixes = {line.split(" |")[0].strip() for line in up.output.splitlines() if " | " in line}
        numbered = {f"shouter:{number}" for number in range(1, 7)} | {f"counter:{number}" for number in range(1, 4)}
        assert prefixes - {"logs"} == {"hub", "parrot:1", *numbered}
        assert shell.run(BLOCKS["send"]).stdout.strip() == BLOCKS["sent"].strip()
        patterns = [re.compile(_pattern(line), re.MULTILINE) for line in BLOCKS["lines"].splitlines()]
        up.wait_until(lambda: all(pattern.search(up.output) for pattern in patterns))
        assert shell.run("rolecall send counter any").stdout.strip() == "1 2 3 4 5"
        assert up.stop(30) == 0
