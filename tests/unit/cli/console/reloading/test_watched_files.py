"""Which files a worker is made of, and when a change is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rolecall.cli.console.reloading.watched_files import MOST, FileWatch, Sources


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def names(sources: Sources, folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in sources()}


def test_a_worker_is_its_module_and_what_that_imports_of_its_folder(tmp_path: Path) -> None:
    used = {
        "shouter.py": "import json\nimport common\nfrom tools import text\nfrom tools.deep.more import x\n",
        "common.py": "def late():\n    import other\n",
        "other.py": "import shouter\n",
        "tools/__init__.py": "",
        "tools/text.py": "from . import near\nfrom .deep import more\n",
        "tools/near.py": "",
        "tools/deep/more.py": "from ..near import y\n",
    }
    write(tmp_path, {**used, "foreign.py": "", "json/__init__.txt": "", "tools/far.py": ""})
    assert names(Sources(tmp_path, module="shouter"), tmp_path) == set(used)


def test_a_module_in_a_package_has_its_packages_too(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(("agents/__init__.py", "agents/shouter.py", "agents/planner.py"), ""))
    assert names(Sources(tmp_path, module="agents.shouter"), tmp_path) == {"agents/__init__.py", "agents/shouter.py"}


def test_a_command_is_the_files_that_its_words_name(tmp_path: Path) -> None:
    write(tmp_path, {"planner.js": "", "agent.py": "import common\n", "common.py": ""})
    assert names(Sources(tmp_path, words=("node", "planner.js", "--fast")), tmp_path) == {"planner.js"}
    assert names(Sources(tmp_path, words=("/usr/bin/env", "python", "agent.py")), tmp_path) == {"agent.py", "common.py"}


def test_watch_adds_files_folders_and_patterns(tmp_path: Path) -> None:
    watched = {"shouter.py", "one.md", "two.md", "prompts/deep/a.txt"}
    write(tmp_path, dict.fromkeys((*watched, "prompts/__pycache__/b.pyc", "prompts/.hidden/c", "three.txt"), ""))
    assert names(Sources(tmp_path, module="shouter", watch=("*.md", "prompts", "absent.txt")), tmp_path) == watched


def test_a_folder_without_end_is_watched_up_to_a_bound(tmp_path: Path) -> None:
    for number in range(MOST + 10):
        (tmp_path / str(number)).touch()
    assert len(list(Sources(tmp_path, watch=(".",))())) == MOST


def test_a_file_that_is_being_written_keeps_its_imports(tmp_path: Path) -> None:
    write(tmp_path, {"shouter.py": "import common\n", "common.py": ""})
    sources = Sources(tmp_path, module="shouter")
    assert names(sources, tmp_path) == {"shouter.py", "common.py"}
    write(tmp_path, {"shouter.py": "import common\ndef broken(:"})
    assert names(sources, tmp_path) == {"shouter.py", "common.py"}
    write(tmp_path, {"shouter.py": "import json\n"})
    assert names(sources, tmp_path) == {"shouter.py"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shouter.py"
    path.write_text("one")
    return path


def touch(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def test_a_change_is_reported_once_and_only_when_it_is_over(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    assert [watch.poll(), watch.poll()] == [None, None]
    touch(file, 1)
    assert watch.poll() is None
    touch(file, 2)
    assert watch.poll() is None
    assert watch.poll() == file
    assert watch.poll() is None


def test_a_file_that_is_replaced_comes_or_goes_has_changed(file: Path) -> None:
    watch = FileWatch(lambda: file.parent.glob("*.py"))
    other = file.with_name("other.py")
    for change in (lambda: other.write_text(""), other.unlink, lambda: file.write_text("longer"), lambda: touch(file, 5)):
        change()
        assert [watch.poll(), watch.poll() is not None, watch.poll()] == [None, True, None]


def test_a_file_that_is_away_while_an_editor_replaces_it_is_one_change(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    file.unlink()
    assert watch.poll() is None
    file.write_text("two")
    touch(file, 7)
    assert [watch.poll(), watch.poll(), watch.poll()] == [None, file, None]
