"""Check that names consist of known words. Run in `make check`; the words are in scripts/words.txt.

A name passes if all its words are listed, or if the standard library or a dependency has the same name.
A name that the project has replaced by a better one fails, and so does a gendered pronoun.
"""

from __future__ import annotations

import ast
import importlib
import io
import keyword
import pkgutil
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORDS = Path(__file__).with_name("words.txt")
FOLDERS = ("hub/", "rolecall/", "worker_sdk/", "tests/", "examples/", "scripts/")
LIBRARIES = (
    "aiosqlite", "argparse", "array", "ast", "asyncio", "base64", "click", "click.shell_completion", "collections",
    "contextlib", "coverage", "ctypes", "cryptography.hazmat.primitives.ciphers.aead", "dataclasses", "datetime",
    "email.utils", "enum", "gc", "hashlib", "hmac", "http.client", "http.server", "httptools", "httpx", "hypercorn.asyncio",
    "hypercorn.config", "hypothesis", "inspect", "io", "ipaddress", "json", "logging", "msgspec", "os", "pathlib", "pickle",
    "prometheus_client", "prometheus_client.registry", "pydantic", "pydantic_settings", "pytest", "_pytest.hookspec",
    "quart", "random", "re", "resource", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "statistics",
    "string", "struct", "subprocess", "sys", "tempfile", "threading", "time", "tokenize", "traceback", "types", "typing",
    "urllib.parse", "uvloop", "weakref", "xdist.newhooks", "builtins",
)  # fmt: skip
PRONOUN = re.compile(r"\b(s?h[e]|h[i](?:m|mself|s)|h[e]r(?:s|self))\b", re.IGNORECASE)
_PIECES = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


class Problem(NamedTuple):
    file: str
    line: int
    text: str


def main() -> None:
    lists = WORDS.read_text(encoding="utf-8").split("[replaced]")
    words, replaced, known_names = words_in(lists[0]), words_in(lists[1]), library_names()
    problems: list[Problem] = []
    for name in _tracked():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py") and name.startswith(FOLDERS):
            problems += in_names(name, text, words, replaced, known_names)
            problems += in_prose(name, _prose_of(text))
        elif name.endswith(".md"):
            problems += in_prose(name, enumerate(text.splitlines(), 1))
    sys.stdout.writelines(f"{file}:{line}: {text}\n" for file, line, text in problems)
    sys.exit(1 if problems else 0)


def words_in(text: str) -> frozenset[str]:
    lines = (line for line in text.splitlines() if not line.startswith(("#", "[")))
    return frozenset(word for line in lines for word in line.partition(":")[0].split())


def words_of(name: str) -> list[str]:
    return [piece.lower() for piece in _PIECES.findall(name)]


def library_names() -> frozenset[str]:
    """All public names of the libraries, and of the classes in them."""
    found = {module.name for module in pkgutil.iter_modules()} | set(sys.builtin_module_names) | set(keyword.kwlist)
    for name in LIBRARIES:
        module = importlib.import_module(name)
        for member in _public(module):
            found.add(member)
            value = getattr(module, member, None)
            if isinstance(value, type | ModuleType):
                found.update(_public(value))
    return frozenset(found)


def _public(value: object) -> Iterator[str]:
    return (name for name in dir(value) if not name.startswith("_"))


def in_names(
    file: str, source: str, words: frozenset[str], replaced: frozenset[str], known_names: frozenset[str]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for line, name in _own_names(ast.parse(source)):
        if name in seen or name in known_names or name.startswith("__"):
            continue
        seen.add(name)
        if name.lstrip("_") in replaced:
            yield Problem(file, line, f'"{name}" has a better name: see CONTRIBUTING.md')
        elif not (file.startswith("tests/") and name.startswith("test_")):
            unknown = [word for word in words_of(name) if len(word) > 1 and word not in words]
            if unknown:
                yield Problem(file, line, f'"{name}": {", ".join(unknown)} is not in scripts/words.txt')


def _own_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a file defines, not those that it uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def in_prose(file: str, lines: Iterator[tuple[int, str]]) -> Iterator[Problem]:
    for number, line in lines:
        for found in PRONOUN.findall(line):
            yield Problem(file, number, f'"{found}": a program is "it", a person is "they"')


def _prose_of(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")


def _tracked() -> list[str]:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in files.stdout.splitlines() if name.endswith((".py", ".md")) and (ROOT / name).is_file()]


if __name__ == "__main__":
    main()
