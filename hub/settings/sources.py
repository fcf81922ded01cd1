"""Where settings come from: the file and the environment. model.py defines what they mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from rolecall.setting import PREFIX, variable

FILE_NAME = "rolecall.toml"
# Read by the client, the command line and workers. The hub must not report them as unknown.
OTHER_VARIABLES = {
    "ROLECALL_CONFIG": "the file to read instead of ./rolecall.toml",
    "ROLECALL_HUB": "where clients and workers find the hub",
    "ROLECALL_TOKEN": "the token that clients and workers send",
    "ROLECALL_TOKEN_FILE": "a file that holds that token",
    "ROLECALL_CA_FILE": "a PEM file of authorities that clients and workers trust for an https hub, beside the system's",
    "ROLECALL_INSTANCE": "a worker's instance name",
    "ROLECALL_ADVERTISE_URL": "the URL under which a worker enrols",
}


class Given(NamedTuple):
    """A raw value, and the source that it came from."""

    value: object
    origin: str


def find_file(file: Path | None, env: Mapping[str, str], problems: list[str]) -> Path | None:
    named = file or (Path(env["ROLECALL_CONFIG"]) if env.get("ROLECALL_CONFIG") else None)
    if named is None:
        here = Path(FILE_NAME)
        return here if here.is_file() else None
    if named.is_file():
        return named
    problems.append(f"{named}: no such file. Name an existing file with --config or ROLECALL_CONFIG, or omit both.")
    return None


def from_file(path: Path, keys: list[str], problems: list[str]) -> dict[str, Given]:
    import tomllib

    try:
        content = path.read_text("utf-8")
        document = tomllib.loads(content)
    except (OSError, UnicodeDecodeError):
        problems.append(f"{path}: cannot be read as UTF-8 text.")
        return {}
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        problems.append(f"{path}:{line.group(1) if line else 1}: not valid TOML.")
        return {}
    given: dict[str, Given] = {}
    for key, value in document.items():
        place = f"{path}:{_line_of(key, content)}"
        if key in keys:
            given[key] = Given(value, place)
        else:
            problems.append(f'{place}: unknown key "{key}".{suggestion(key, keys)}')
    return given


def _line_of(key: str, content: str) -> int:
    found = re.search(rf"""^[ \t]*\[*[ \t]*["']?{re.escape(key)}["']?[ \t]*[\].=]""", content, re.MULTILINE)
    return content.count("\n", 0, found.start()) + 1 if found else 1


def from_env(env: Mapping[str, str], aliases: Mapping[str, tuple[str, ...]], problems: list[str]) -> dict[str, Given]:
    """An empty variable counts as unset: compose files create such variables."""
    given: dict[str, Given] = {}
    for key, others in aliases.items():
        for name in (*others[::-1], variable(key)):
            if env.get(name):
                given[key] = Given(env[name], f"env {name}")
        path = env.get(f"{variable(key)}_FILE")
        if path and env.get(variable(key)):
            problems.append(f"{variable(key)} and {variable(key)}_FILE are both set. Keep one.")
        elif path:
            content = read_secret_file(f"{variable(key)}_FILE", path, problems)
            given[key] = Given(content, f"env {variable(key)}_FILE")
    known = {*map(variable, aliases), *(f"{variable(key)}_FILE" for key in aliases), *OTHER_VARIABLES}
    unknown = sorted(name for name in env if name.startswith(PREFIX) and name not in known)
    problems.extend(f"unknown variable {name}.{suggestion(name, sorted(known))}" for name in unknown)
    return given


def read_secret_file(name: str, path: str, problems: list[str]) -> str:
    """`name`: the variable that names the file."""
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        problems.append(f"{name}: {path} cannot be read as UTF-8 text.")
        return ""


def suggestion(name: str, known: list[str]) -> str:
    matches = get_close_matches(name, known, n=1)
    return f' Did you mean "{matches[0]}"?' if matches else " `rolecall config show` lists the known ones."


def platform_data_dir(env: Mapping[str, str], problems: list[str]) -> Path:
    try:
        if sys.platform == "win32":
            return Path(env.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rolecall"
        if sys.platform == "darwin":
            return Path.home() / "Library/Application Support/rolecall"
        return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "rolecall"
    except RuntimeError:
        problems.append("data_dir: this user has no home directory. Set ROLECALL_DATA_DIR.")
        return Path()
