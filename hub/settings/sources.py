"""The environment and the file as sources of pydantic-settings, which say where each value stands, and all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, TomlConfigSettingsSource

from hub.settings.fields import expected_of, spec_of
from hub.settings.values import PATH, below
from rolecall.errors import ConfigError
from rolecall.setting import PREFIX, variable
from rolecall.toml_file import line_of, read_toml
from rolecall.toml_file import suggestion as nearest

FILE_NAME = "rolecall.toml"
AGENTS = "agents"
"""The key of a table in that file: see hub/settings/agents.py."""
# Read by the client, the command line and workers. The hub must not report them as unknown.
OTHER_VARIABLES = {
    "ROLECALL_CONFIG": "the file to read instead of ./rolecall.toml",
    "ROLECALL_HUB": "where clients and workers find the hub",
    "ROLECALL_TOKEN": "the token that clients and workers send",
    "ROLECALL_TOKEN_FILE": "a file that holds that token; it is read again when it changes",
    "ROLECALL_INSTANCE": "a worker's instance name, or its whole name: role:instance",
    "ROLECALL_ADVERTISE_URL": "the URL under which a worker enrols",
    "ROLECALL_WORKER_TLS_CERT": "the certificate of a worker that serves https, as a PEM file",
    "ROLECALL_WORKER_TLS_KEY": "the key of that certificate",
}

RETIRED = {
    "server": "That setting is gone: `rolecall serve` has one server, and `hypercorn hub.asgi:app` runs the hub on Hypercorn.",
}
"""Settings that earlier versions had, and what to do instead."""
_OF_UP = dict.fromkeys(
    ("hub", "console", "workers", "announce"), "That table belongs into agents.toml, which `rolecall up` reads."
)


class Environment(EnvSettingsSource):
    """pydantic-settings prefers an alias to `ROLECALL_X`, knows no `ROLECALL_X_FILE`, and ignores unknown variables."""

    def __init__(self, settings: type[BaseSettings], env: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._env = env
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []

    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        names = [variable(key) for key in self.settings_cls.model_fields]
        known = sorted({*names, *(f"{name}_FILE" for name in names), *OTHER_VARIABLES})
        unknown = sorted(name for name in self._env if name.startswith(PREFIX) and name not in known)
        self.problems += [f"unknown variable {name}.{suggestion(name, known)}" for name in unknown]
        return values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        name, in_file = variable(field_name), f"{variable(field_name)}_FILE"
        # An empty variable counts as unset: compose files create such variables.
        found = [other for other in (name, in_file, *spec_of(field).aliases) if self._env.get(other)]
        if not found:
            return None, field_name, False
        if found[:2] == [name, in_file]:
            self.problems.append(f"{name} and {in_file} are both set. Keep one.")
        self.origins[field_name] = f"env {found[0]}"
        value = self._env[found[0]]
        return self._content(in_file, value) if found[0] == in_file else value, field_name, False

    def _content(self, name: str, path: str) -> str | None:
        """`name`: the variable that names the file."""
        try:
            return Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            self.problems.append(f"{name}: {path} cannot be read as UTF-8 text.")
            return None


class TomlFile(TomlConfigSettingsSource):
    """pydantic-settings passes over a file that is missing, and gives no line for a key or a mistake."""

    def __init__(self, settings: type[BaseSettings], path: Path | None) -> None:
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []
        self._fields = settings.model_fields
        self.agents: tuple[Any, str] = [], ""
        """The table of agents, which is no setting, and the text that it stands in."""
        if path is not None and not path.is_file():
            self.problems.append(f"{path}: no such file. Name an existing file with --config or ROLECALL_CONFIG, or omit both.")
        super().__init__(settings, path)

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        try:
            document, content = read_toml(file_path)
        except ConfigError as error:
            self.problems += error.problems
            return {}
        if AGENTS in document:
            self.agents = document.pop(AGENTS), content
        self.origins = {key: f"{file_path}:{line_of(key, content)}" for key in document}
        return {key: self._placed(key, value, file_path) for key, value in document.items()}

    def _placed(self, key: str, value: Any, file: Path | Traversable) -> Any:
        """A path is relative to the file that it stands in, wherever the hub is started."""
        field = self._fields.get(key)
        is_path = field is not None and expected_of(field.annotation, field.metadata) is PATH
        return below(file.parent, value) if is_path and isinstance(file, Path) else value


def chosen_file(file: Path | None, env: Mapping[str, str]) -> Path | None:
    """The file that a flag or ROLECALL_CONFIG names, which may be missing; else the one in the working folder, if any."""
    if file or env.get("ROLECALL_CONFIG"):
        return file or Path(env["ROLECALL_CONFIG"])
    return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None


def suggestion(name: str, known: Sequence[str], otherwise: str = " `rolecall config show` lists the known ones.") -> str:
    reason = _OF_UP.get(name) or RETIRED.get(name.removeprefix(PREFIX).lower())
    return f" {reason}" if reason else nearest(name, known, otherwise)
