"""Shell completion: commands from here, roles and instances from the hub, and silence where that fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.processes import ROLECALL, ROOT, environment
from tests.helpers.terminal import Terminal
from tests.unit.cli.scripted_hub import Response, ScriptedHub

SKILLS = {"echo:a": ["say", "shout"], "echo:b": ["sing"], "planner:x": ["plan"]}
AGENTS = {"agents": [{"name": name, "skills": [{"id": skill} for skill in skills]} for name, skills in SKILLS.items()]}


def completed(words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What a bash gets for these words, whose last one is incomplete."""
    asked = {
        "_ROLECALL_COMPLETE": "bash_complete",
        "COMP_LINE": f"rolecall {words}",
        "COMP_WORD": re.split("[ :=]", words)[-1],
        **env,
    }
    return subprocess.run(ROLECALL, env=environment(asked), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def values(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_one_line_makes_a_shell_complete(shell: str) -> None:
    done = subprocess.run([*ROLECALL, "completion", shell], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert "_ROLECALL_COMPLETE" in done.stdout and "rolecall" in done.stdout


def test_commands_are_completed_without_a_hub() -> None:
    assert values(completed("comp")) == ["completion"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("send ", ["echo", "planner"]),
        ("send pl", ["planner"]),
        ("send echo:", ["a", "b"]),
        ("send planner:x", ["x"]),
        ("agents show e", ["echo:a", "echo:b"]),
        ("agents show echo:a", ["a"]),
        ("send echo --skill s", ["say", "shout", "sing"]),
        ("chat echo:b hi --skill ", ["sing"]),
        ("agents ls --skill ", ["plan", "say", "shout", "sing"]),
    ],
)
def test_roles_instances_and_skills_come_from_the_hub(hub: ScriptedHub, words: str, found: list[str]) -> None:
    hub.on("GET /registry/agents", Response(AGENTS))
    assert values(completed(words, ROLECALL_HUB=hub.url, ROLECALL_TOKEN="t0k")) == found
    assert hub.requests[-1].headers["authorization"] == "Bearer t0k"


def test_a_real_bash_completes_what_stands_before_and_behind_a_colon(hub: ScriptedHub, tmp_path: Path) -> None:
    hub.on("GET /registry/agents", Response(AGENTS))
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PS1": "$ "}
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env=env, cwd=tmp_path, columns=200) as bash:
        bash.expect("$ ")
        bash.enter('eval "$(rolecall completion bash)"', "$ ")
        for typed, whole in (("planner:", "planner:x "), ('"planner:', '"planner:x" ')):
            bash.press(f"rolecall --hub {hub.url} send {typed}\t")
            bash.expect(f"{hub.url} send {whole}")
            bash.press("\x15")


@pytest.mark.parametrize("answer", [Response("<html>"), Response({"detail": "no"}, 401), Response({"agents": [{}]})])
def test_a_hub_that_cannot_answer_is_passed_over_in_silence(hub: ScriptedHub, answer: Response) -> None:
    hub.on("GET /registry/agents", answer)
    assert values(completed("send e", ROLECALL_HUB=hub.url)) == []


def test_so_are_an_absent_hub_and_wrong_settings(tmp_path: Path) -> None:
    began = time.monotonic()
    assert values(completed("send e", ROLECALL_HUB="http://127.0.0.1:9")) == []
    assert values(completed("send e", ROLECALL_HUB="nonsense")) == []
    assert values(completed("send e", ROLECALL_TOKEN_FILE=str(tmp_path / "none"))) == []
    assert time.monotonic() - began < 15
