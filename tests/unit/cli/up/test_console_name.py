"""A file has one console at a time, which keeps its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.cli.output import CommandError
from rolecall.cli.up.console_name import only_console
from tests.helpers.processes import environment

HOLDS = """
import sys
from pathlib import Path
from rolecall.cli.up.console_name import only_console
with only_console(Path(sys.argv[1]), None) as name:
    print(name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROLECALL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def name_of(file: Path, name: str | None = None) -> str:
    with only_console(file, name) as found:
        return found


def test_it_keeps_four_letters_and_other_files_and_folders_for_data_have_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = name_of(tmp_path / "agents.toml")
    assert len(first) == 4
    monkeypatch.chdir(tmp_path)
    assert name_of(Path("agents.toml")) == first
    others = {name_of(tmp_path / f"{number}.toml") for number in range(4)}
    assert len(others) > 1 and others != {first}
    monkeypatch.setenv("ROLECALL_DATA_DIR", str(tmp_path / "other machine"))
    assert {name_of(tmp_path / "agents.toml"), *others} != {first}


def test_a_second_one_is_refused_with_the_process_of_the_first_and_a_copy_with_a_name_is_not(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    command = [sys.executable, "-c", HOLDS, str(file)]
    env = environment({"ROLECALL_DATA_DIR": str(tmp_path / "data")})
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        first = holder.stdout.readline().strip()
        with (
            pytest.raises(CommandError, match=f"agents.toml runs already, in process {holder.pid}") as refused,
            only_console(file, None),
        ):
            pass
        assert (refused.value.code, "rolecall up --name NAME" in refused.value.hint) == (2, True)
        assert name_of(file, "blue") == "blue"
        with only_console(file, "blue"), pytest.raises(CommandError, match="runs already"), only_console(file, "blue"):
            pass
        holder.kill()
    assert name_of(file) == first


def test_what_a_killed_process_has_left_half_written_is_no_name(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "agents.toml"
    name_of(file)
    for content in ('{"console": "ab', "[]", '{"console": 7}', ""):
        (place,) = (data / "consoles").glob("*.json")
        place.write_text(content)
        assert len(name_of(file)) == 4


def test_without_a_folder_to_write_to_it_says_so_and_goes_on(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.write_text("a file")
    assert len(name_of(tmp_path / "agents.toml")) == 4
    assert f"a second console of {tmp_path}/agents.toml would not be noticed: {data}" in capsys.readouterr().err
