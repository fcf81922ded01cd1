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
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError([f"{path}:{line.group(1) if line else 1}: not valid TOML."]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read as UTF-8 text."]) from error


def line_of(key: str, content: str) -> int:
    """Where the key, or the table of that name (`workers.shouter`), begins."""
    name = r"[ \t]*\.[ \t]*".join(rf"""["']?{re.escape(part)}["']?""" for part in key.split("."))
    found = re.search(rf"^[ \t]*\[*[ \t]*{name}[ \t]*[\].=]", content, re.MULTILINE)
    return content.count("\n", 0, found.start()) + 1 if found else 1


def suggestion(name: str, known: Sequence[str], otherwise: str = "") -> str:
    """What to add to an error about an unknown name; `otherwise`: if it resembles none."""
    matches = get_close_matches(name, known, n=1)
    return f' Did you mean "{matches[0]}"?' if matches else otherwise
