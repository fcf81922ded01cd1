"""The name of a build: from a clone, from what pip noted, from what is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rolecall.build import build, digest_of, revision_of
from tests.helpers.processes import ROOT

OLD, NEW = "1" * 40, "2" * 40


@pytest.fixture
def git(tmp_path: Path) -> Path:
    """On a branch whose last commit is in a file of its own."""
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{OLD} refs/heads/main\n^{NEW}\n")
    (git / "refs" / "heads" / "main").write_text(f"{NEW}\n")
    return git


def test_a_clone_is_at_the_commit_that_is_checked_out(git: Path, tmp_path: Path) -> None:
    assert revision_of(git) == NEW
    (git / "refs" / "heads" / "main").unlink()
    assert revision_of(git) == OLD
    (git / "HEAD").write_text(f"{NEW}\n")
    assert revision_of(git) == NEW
    assert revision_of(tmp_path / "none") == ""


def test_a_second_working_folder_has_a_file_that_names_its_clone(git: Path, tmp_path: Path) -> None:
    own = git / "worktrees" / "second"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    second = tmp_path / "second.git"
    second.write_text(f"gitdir: {own}\n")
    assert revision_of(second) == NEW


def test_installed_builds_differ_by_their_code_alone() -> None:
    code = "hub/app.py,sha256=abc,10\nrolecall/cli/__init__.py,sha256=def,20\n"
    here = code + "../../../bin/rolecall,sha256=one,200\nhub/__pycache__/app.pyc,,\n"
    there = "rolecall-0.1.0.dist-info/RECORD,,\n" + code + "../../../bin/rolecall,sha256=other,210\n"
    assert digest_of(here) == digest_of(there) != digest_of(code.replace("abc", "abd"))
    assert digest_of("") == ""


def test_this_clone_is_named_as_git_names_it() -> None:
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("this is no clone")
    assert build() == f"git-{found.stdout[:12]}"
