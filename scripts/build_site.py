"""Build the site from the Markdown of this repository: `make site` writes it to site/.

The pages stand in the site where they stand in the repository, so their links need no change. A broken link, a missing anchor
and a page that no menu has are errors.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "site"
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/tutorial.md"),
    "How to": ("docs/howto/*.md",),
    "Examples": ("examples/README.md", "examples/*/README.md"),
    "Reference": ("docs/reference/*.md", "docs/glossary.md"),
    "Explanation": ("docs/explanation/*.md", "SECURITY.md"),
    "Decisions": ("docs/decisions/README.md", "docs/decisions/*.md"),
    "Project": ("CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md"),
}
"""The menu. A page stands where it is named first."""
_FENCE = re.compile(r"^( *```\w+) [\w-]+$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def menu_pages() -> dict[str, list[str]]:
    """The pages of each section of the menu."""
    placed: set[str] = set()
    menu: dict[str, list[str]] = {}
    for section, patterns in _SECTIONS.items():
        found = dict.fromkeys(str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern)))
        menu[section] = [page for page in found if page not in placed]
        placed |= found.keys()
    return menu


def title_of(page: str) -> str:
    """Its first heading, without marks of code."""
    heading = next(line for line in (ROOT / page).read_text("utf-8").splitlines() if line.startswith("# "))
    return heading[2:].replace("`", "").strip()


def gather(folder: Path) -> list[dict[str, Any]]:
    """Copy the pages and the files that they link to, and return the menu."""
    menu = menu_pages()
    for page in (page for section in menu.values() for page in section):
        for source in (page, *_files_of(page)):
            target = folder / source
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix == ".md":
                # The word behind a block's language is for the tests. The site would not take it for a block.
                target.write_text(_FENCE.sub(r"\1", (ROOT / source).read_text("utf-8")), "utf-8")
            else:
                shutil.copyfile(ROOT / source, target)
    return [{section: [{title_of(page): page} for page in found]} for section, found in menu.items()]


def _files_of(page: str) -> Iterator[str]:
    for target in _LINK.findall((ROOT / page).read_text("utf-8")):
        path = ((ROOT / page).parent / target).resolve()
        if not re.match(r"[a-z]+:", target) and path.is_file() and path.suffix != ".md":
            yield str(path.relative_to(ROOT))


def build_site(output: Path) -> None:
    """Raises what is wrong with a page."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pages"
        source.mkdir()
        menu = gather(source)
        config = Path(folder) / "site.yml"
        config.write_text((ROOT / "docs/site.yml").read_text("utf-8") + yaml.safe_dump({"nav": menu}, sort_keys=False), "utf-8")
        build(load_config(str(config), docs_dir=str(source), site_dir=str(output), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the site, and show it if asked.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--serve", type=int, metavar="PORT", help="then serve it on 127.0.0.1")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    build_site(chosen.output)
    sys.stdout.write(f"{chosen.output}/index.html\n")
    if chosen.serve:
        command = [
            sys.executable,
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
            str(chosen.output),
            str(chosen.serve),
        ]
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
