"""The site is built from the pages, and every public name is on it."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rolecall
from tests.helpers.scripts import load_script

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "python.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make site` does. A broken link, a missing anchor and a page without a place in the menu would end it with 1."""
    output = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/build_site.py", "--output", output], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return output


def test_every_page_is_in_the_site_and_can_be_searched(site: Path) -> None:
    menu = load_script("build_site").menu_pages()
    in_index = {
        entry["location"].partition("#")[0] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    for page in (page for section in menu.values() for page in section):
        address = page.removesuffix("README.md") if page.endswith("README.md") else page.removesuffix(".md") + "/"
        assert (site / address / "index.html").is_file(), page
        assert address in in_index, page


def test_every_heading_of_a_page_is_one_in_the_site(site: Path) -> None:
    """A block of code that the site does not see as one would swallow headings."""
    for section in load_script("build_site").menu_pages().values():
        for page in section:
            text = re.sub(
                r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
            )
            address = page.removesuffix("README.md") if page.endswith("README.md") else page.removesuffix(".md") + "/"
            shown = (site / address / "index.html").read_text("utf-8")
            assert len(re.findall(r"<h2[ >]", shown)) == len(re.findall(r"^## ", text, re.MULTILINE)), page


def test_the_site_loads_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?(https?:[^\s\">]+)", text)
        assert loaded == [], page


def test_the_reference_of_python_names_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == load_script("python_reference").page(), "run scripts/python_reference.py"


@pytest.mark.parametrize("name", rolecall.__all__)
def test_every_public_name_can_be_imported_has_a_docstring_and_an_entry(name: str) -> None:
    value = getattr(importlib.import_module("rolecall"), name)
    assert (value.__doc__ or "").strip(), name
    assert not value.__doc__.startswith(f"{name}("), "the text of a dataclass without a docstring"
    assert f"### `{name}`\n" in REFERENCE.read_text(encoding="utf-8")
