"""The map of the tree is current."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.scripts import load_script

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
MOST_FILES = 14


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("architecture")


def test_the_picture_is_drawn_from_the_tree_as_it_is(script: ModuleType) -> None:
    assert script.PICTURE.read_text(encoding="utf-8") == script.picture(), "run scripts/architecture.py"


def test_every_module_is_in_a_room_of_the_picture(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="is in no room"):
        list(script.imports(frozenset({"rolecall.cli"})))
    assert list(script.imports(frozenset(name for row in script.ROWS for name in row)))


def test_every_file_that_the_page_names_is_there() -> None:
    """A name without its folder stands behind a file of the same folder."""
    for cell in re.findall(r"\|([^|\n]+)", PAGE.read_text(encoding="utf-8")):
        folder = ROOT
        for name in re.findall(r"`([\w./*]+(?:\.py|\.md|/))`", cell):
            bases = [base for base in (ROOT, folder, folder.parent) if any(base.glob(name.rstrip("/")))]
            assert bases, name
            folder = next(bases[0].glob(name.rstrip("/")))
            folder = folder if folder.is_dir() else folder.parent


@pytest.mark.parametrize("top", ["hub", "rolecall", "worker_sdk"])
def test_each_room_says_what_belongs_in_it_and_is_small_enough_to_overlook(top: str) -> None:
    for folder in {path.parent for path in (ROOT / top).rglob("*.py")}:
        sentence = (folder / "__init__.py").read_text(encoding="utf-8")
        assert sentence.startswith('"""') and len(sentence) > 20, folder
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder
