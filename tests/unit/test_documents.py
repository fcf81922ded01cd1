"""Links lead somewhere, and prose names only what is there."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hub.core.shares.share import WorkspaceShare
from hub.core.shares.table import Shares
from hub.settings.model import SPECS, variable
from rolecall.errors import Overloaded

ROOT = Path(__file__).parents[2]
_CAMEL = re.compile(r"(?<![\w/.#-])(?:[A-Z][a-z0-9]+){2,}(?![\w/-])")
ELSEWHERE = frozenset(
    [
        "ErrorInfo",
        "GetTask",
        "ListTasks",
        "SendMessage",
        "SubscribeToTask",
        "CancelTask",
        "JavaScript",
        "TypeScript",
        "PostgreSQL",
        "GitHub",
        "OpenTelemetry",
        "ProtoJSON",
        "ContextVar",
        "LangGraph",
        "TypedDicts",
        "SendStreamingMessage",
        "GetExtendedAgentCard",
    ]
)
"""Names of A2A, of other programs and of the language."""


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("page", tracked("*.md"))
def test_every_relative_link_leads_to_a_file(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", tracked("README.md", "docs/tutorial.md", "docs/howto/*.md", "examples/*/README.md"))
def test_every_block_of_a_page_has_a_name_and_a_test_that_uses_it(page: str) -> None:
    """A test that reads the blocks of the page (`blocks_of`), and names the block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```(.*)$", text, re.MULTILINE)[::2]
    assert [block for block in blocks if len(block.split()) != 2] == []
    readers = [strings for strings in _strings_of_tests() if page in strings]
    used = frozenset[str]().union(*readers)
    assert {block.split()[1] for block in blocks} - used == set()


@cache
def _strings_of_tests() -> list[frozenset[str]]:
    """Of each test module that reads the blocks of pages."""
    sources = [(ROOT / name).read_text("utf-8") for name in tracked("tests/*.py")]
    trees = [ast.parse(source) for source in sources if "blocks_of(" in source]
    return [
        frozenset(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        for tree in trees
    ]


def test_prose_names_only_classes_that_are_there() -> None:
    """A name of the code, or a whole string."""
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in tracked("*.py")}
    product = {name: text for name, text in sources.items() if name.startswith(("hub/", "rolecall/", "worker_sdk/"))}
    named = {(file, name) for file, text in product.items() for name in _named_in_prose(text)}
    unknown = {name for _, name in named} - ELSEWHERE
    unknown -= {word for source in sources.values() for word in re.findall(r"[\"'](\w+)[\"']", source)}
    for source in sources.values():
        if any(name in source for name in unknown):  # to read them all takes seconds
            unknown.difference_update(_identifiers(source))
    assert {f"{file}: {name}" for file, name in named if name in unknown} == set()


# --- what is promised about security


def test_every_test_that_a_page_names_is_there() -> None:
    tests = {name for file in tracked("tests/*.py") for name in re.findall(r"def (test_\w+)", (ROOT / file).read_text("utf-8"))}
    named = {name for page in tracked("*.md") for name in re.findall(r"`(test_\w+)`", (ROOT / page).read_text("utf-8"))}
    assert len(named) > 20
    assert named - tests == set()


def test_security_tells_of_each_scarce_thing_its_share_its_setting_and_its_refusal() -> None:
    rows = _rows_of((ROOT / "SECURITY.md").read_text("utf-8"), "## What a workspace can use up")
    assert {row[0] for row in rows} == {f"`{share.use.thing}`" for share in Shares()}
    for thing, share, setting, refusal, shown_by in rows:
        assert share.startswith(("held:", "in turn:")) and refusal, thing
        assert re.findall(r"`(ROLECALL_\w+)`", setting) or setting == "none", thing
        assert {key for key in re.findall(r"`(ROLECALL_\w+)`", setting)} <= {variable(key) for key in SPECS}, thing
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", shown_by), thing


def test_security_names_the_setting_that_a_refusal_names() -> None:
    rows = {row[0]: row[2] for row in _rows_of((ROOT / "SECURITY.md").read_text("utf-8"), "## What a workspace can use up")}
    for share in Shares():
        if isinstance(share, WorkspaceShare):
            with pytest.raises(Overloaded) as refused:
                for _ in range(2):  # one answer is sent, however large it is
                    share.take("a", 10**18)
            setting = refused.value.setting
            assert (f"`{variable(setting)}`" if setting in SPECS else "none") in rows[f"`{share.use.thing}`"]


def _rows_of(text: str, title: str) -> list[list[str]]:
    """The cells of the table below that title."""
    section = text.partition(title)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _identifiers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string


def _named_in_prose(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _CAMEL.findall(token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _CAMEL.findall(node.value.value)
