"""Links lead somewhere, and prose names only what is there."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_prose_names_only_classes_that_are_there() -> None:
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in tracked("*.py")}
    known = {name for source in sources.values() for name in _identifiers(source)} | ELSEWHERE
    known |= {word for source in sources.values() for word in re.findall(r"[\"'](\w+)[\"']", source)}
    product = {name: text for name, text in sources.items() if name.startswith(("hub/", "rolecall/", "worker_sdk/"))}
    unknown = {f"{file}: {name}" for file, text in product.items() for name in _named_in_prose(text) if name not in known}
    assert not unknown


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
