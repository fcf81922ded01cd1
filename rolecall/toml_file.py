"""Files that people write in TOML: what is in them, on which line, and which known key an unknown one resembles."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rolecall.errors import ConfigError


def read_toml(path: Path | Traversable) -> tuple[dict[str, Any], str]:
    """The document, and its text. ConfigError."""
    try:
        content = path.read_text("utf-8")
        return tomllib.loads(content), content
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_not_toml(path, content, str(error))]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read as UTF-8 text."]) from error


def line_of(key: str, content: str) -> int:
    """Where the key, or the table of that name (`workers.shouter`), begins."""
    name = r"[ \t]*\.[ \t]*".join(rf"""["']?{re.escape(part)}["']?""" for part in key.split("."))
    found = re.search(rf"^[ \t]*\[*[ \t]*{name}[ \t]*[\].=]", content, re.MULTILINE)
    return content.count("\n", 0, found.start()) + 1 if found else 1


def line_within(table_line: int, key: str, content: str) -> int:
    """Where the key stands in the table that begins on that line; the line of the table if it does not."""
    name = re.compile(rf"""[ \t]*["']?{re.escape(key)}["']?[ \t]*[.=]""")
    for number, line in enumerate(content.splitlines()[table_line:], table_line + 1):
        if line.lstrip().startswith("["):
            break
        if name.match(line):
            return number
    return table_line


def suggestion(name: str, known: Sequence[str], otherwise: str = "") -> str:
    """What to add to an error about an unknown name; `otherwise`: if it resembles none."""
    matches = get_close_matches(name, known, n=1)
    return f' Did you mean "{matches[0]}"?' if matches else otherwise


def _not_toml(path: Path | Traversable, content: str, why: str) -> str:
    """The parser's reason, which may name a key but no value."""
    reason, _, place = why.removesuffix(")").partition(" (at ")
    found = re.fullmatch(r"line (\d+), column (\d+)", place)
    line = found[1] if found else content.count("\n", 0, len(content.rstrip())) + 1
    column = f", in column {found[2]}" if found else ", at the end of the file"
    return f"{path}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}{column}."
