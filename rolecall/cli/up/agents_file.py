"""`agents.toml`: the programs of `rolecall up`. The hub's own settings stand in `rolecall.toml`, as for every command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from hub.settings.entries import ENTRY, KeyText, entry_problems, keys_of
from hub.settings.fields import Expected, refusal
from hub.settings.values import Choice, Integer, Role, Seconds, Switch, Text, Url
from rolecall.cli.console.programs import DRAIN
from rolecall.cli.console.restart_policy import Restart
from rolecall.cli.output import CommandError
from rolecall.errors import ConfigError
from rolecall.model.ids import is_role
from rolecall.toml_file import line_of, line_within, read_toml, suggestion

FILE_NAME = "agents.toml"
MOST_INSTANCES = 100
_OF_ONE_PROCESS = ("PORT", "ROLECALL_INSTANCE", "ROLECALL_ADVERTISE_URL")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_TABLE_OF_VARIABLES = 'a table of texts or numbers, such as {MODEL = "small"}'
_TARGET = re.compile(r"[\w./-]+(:\w+)?")


def _words(value: object) -> object:
    if isinstance(value, str):
        raise refusal('must be a list of words, such as ["node", "agent.js"]')
    return value


def _target(text: str) -> str:
    if not _TARGET.fullmatch(text):
        raise ValueError
    return text


def _variables(table: object) -> object:
    """The refusal does not repeat the values, which may be secret."""
    entries = table.items() if isinstance(table, dict) else [("", None)]
    if not all(name and not set(name) & set("=\0") and type(value) in (str, int) for name, value in entries):
        raise refusal(f"must be {_TABLE_OF_VARIABLES}")
    return {name: str(value) for name, value in entries}


Target = Annotated[Text, AfterValidator(_target), Expected("module:worker, such as shouter:worker")]
Words = Annotated[
    tuple[str, ...], BeforeValidator(_words), Field(min_length=1), Expected('a list of words, such as ["node", "agent.js"]')
]
Variables = Annotated[dict[str, str], BeforeValidator(_variables), Expected(_TABLE_OF_VARIABLES)]
Paths = Annotated[tuple[Text, ...], Expected('a list of files, folders or patterns, such as ["prompts/*.md"]')]


class HubEntry(BaseModel):
    """`[hub]`"""

    model_config = ENTRY

    url: Url | None = None
    """A hub that runs already, here or elsewhere. `--hub` and `ROLECALL_HUB` come before it. Without any of them: the hub of
    this machine, which is started if it does not run."""


class ConsoleEntry(BaseModel):
    """`[console]`"""

    model_config = ENTRY

    logs: Switch = True
    """Whether what workers and calls do at the hub is printed among the lines of the programs, as `rolecall logs` does.
    `--logs` and `--no-logs` come before it."""


class WorkerEntry(BaseModel):
    """`[workers.NAME]`"""

    model_config = ENTRY

    run: Target | None = None
    """The module and the Worker in it, as for `rolecall worker run`. Either this or `command`."""

    command: Words | None = None
    """Any other program, in any language. It gets `ROLECALL_HUB`, `ROLECALL_TOKEN` if there is one, and `ROLECALL_INSTANCE`."""

    instances: Annotated[Integer, Field(ge=1, le=MOST_INSTANCES), Expected(f"a whole number from 1 to {MOST_INSTANCES}")] = 1
    """How many of it run: NAME:1, NAME:2 and so on, which are also their names at the hub if NAME is their role."""

    env: Variables = Field(default_factory=dict)
    """Variables for it. It also gets those of your shell, except `PORT`, `ROLECALL_…` and `A2A_…`."""

    cwd: Annotated[Text, Expected("a path")] = "."
    """Its working folder, relative to the file."""

    restart: Annotated[Choice[Restart], Expected("always, on-failure or never")] = Restart.ALWAYS
    """When it starts again after it has ended: `always` by default. Five failures at once in a row leave it stopped."""

    watch: Paths = ()
    """What `rolecall up --reload` watches beside its own files, relative to `cwd`."""

    drain: Annotated[Seconds, Field(ge=0, le=86_400), Expected("0 to 86400 seconds (also 90s, 5m)")] = DRAIN
    """How long it may finish its tasks when it is stopped; then it is killed. A worker of the SDK needs up to 30 s."""

    @model_validator(mode="after")
    def _check(self) -> WorkerEntry:
        if (self.run is None) == (self.command is None):
            problem = "it has both run and command: keep one" if self.run else "it needs run or command"
            raise refusal(f"{problem}.")
        shared = [name for name in _OF_ONE_PROCESS if name in self.env]
        if self.instances > 1 and shared:
            raise refusal(f"env: {shared[0]} would be the same for {self.instances} instances.")
        return self


class AnnounceEntry(BaseModel):
    """`[announce.NAME]`"""

    model_config = ENTRY

    url: Url
    """Where the hub reaches an A2A server that does not enrol by itself, as for `rolecall announce`."""

    role: Role | None = None
    """The role that it serves. Without it: NAME."""

    capacity: Annotated[Integer, Field(ge=1, le=1_000_000), Expected("a whole number from 1")] | None = None
    """The maximum number of concurrent calls."""

    agent_token_file: Annotated[Text, Expected("a path")] | None = None
    """A file with the token that the server asks for, relative to the file."""


_Model = TypeVar("_Model", bound=BaseModel)
_TABLES: dict[str, type[BaseModel]] = {
    "hub": HubEntry,
    "console": ConsoleEntry,
    "workers": WorkerEntry,
    "announce": AnnounceEntry,
}
_KNOWN_TABLES = " Its tables are [hub], [console], [workers.NAME] and [announce.NAME]."
_SETTINGS_ELSEWHERE = " The hub's settings stand in rolecall.toml."
_LIST_ELSEWHERE = " [[agents]] belongs into rolecall.toml, where the hub reads it. Here it is [announce.NAME]."


@dataclass(frozen=True, slots=True)
class AgentsFile:
    path: Path
    hub: str | None
    logs: bool
    """Whether what happens at the hub is printed."""
    workers: dict[str, WorkerEntry]
    announced: dict[str, AnnounceEntry]

    @property
    def folder(self) -> Path:
        return self.path.absolute().parent

    def path_of(self, relative: str) -> Path:
        return self.folder / Path(relative).expanduser()


def tables() -> Iterator[tuple[str, Sequence[KeyText]]]:
    """Each table as it is written, and its keys."""
    for model in _TABLES.values():
        yield str(model.__doc__), list(keys_of(model))


def read_agents_file(given: Path) -> AgentsFile:
    """That file, or the one in that folder. ConfigError lists all that is wrong."""
    path = given / FILE_NAME if given.is_dir() else given
    if not path.is_file():
        raise CommandError(f"there is no {path}", "NO_FILE", 2, "make one, with a worker and its test: rolecall init")
    document, content = read_toml(path)
    reader = _Reader(path, content)
    hub = reader.entry("hub", document.get("hub", {}), HubEntry)
    console = reader.entry("console", document.get("console", {}), ConsoleEntry) or ConsoleEntry()
    workers = dict(reader.named("workers", document, WorkerEntry))
    announced = dict(reader.named("announce", document, AnnounceEntry))
    file = AgentsFile(path, hub.url if hub is not None else None, console.logs, workers, announced)
    problems = [*_unknown_tables(document, reader), *reader.problems, *_wrong_paths(file, reader)]
    if not problems and not workers and not announced:
        problems.append(f"{path}: it names no worker. Add [workers.NAME] or [announce.NAME].")
    if problems:
        raise ConfigError(problems)
    return file


class _Reader:
    """Reads the tables of one file, and collects what is wrong with them."""

    def __init__(self, path: Path, content: str) -> None:
        self.problems: list[str] = []
        self._path = path
        self._content = content

    def place(self, key: str) -> str:
        return f"{self._path}:{line_of(key, self._content)}:"

    def _place_within(self, table: str, key: str) -> str:
        return f"{self._path}:{line_within(line_of(table, self._content), key, self._content)}"

    def named(self, key: str, document: Mapping[str, Any], model: type[_Model]) -> Iterator[tuple[str, _Model]]:
        """`[workers.NAME]`: the names, and what stands below each."""
        table = document.get(key, {})
        if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
            self.problems.append(f"{self.place(key)} {key} must be written as [{key}.NAME], once for each.")
            return
        for name, entry in table.items():
            if not _NAME.fullmatch(name):
                self.problems.append(f'{self.place(key)} "{name}" is not a name: at most 32 letters, digits, dots, dashes.')
                continue
            read = self.entry(f"{key}.{name}", entry, model)
            if read is not None:
                yield name, read

    def entry(self, key: str, entry: Mapping[str, Any], model: type[_Model]) -> _Model | None:
        try:
            return model.model_validate(entry)
        except ValidationError as error:
            problems = list(entry_problems(error, model, entry, partial(self._place_within, key), f"[{key}]"))
            if model is HubEntry:
                problems = [f"{one}{_SETTINGS_ELSEWHERE}" if "unknown key" in one else one for one in problems]
            self.problems += problems
            return None


def _unknown_tables(document: Mapping[str, Any], reader: _Reader) -> Iterator[str]:
    for key in document:
        if key not in _TABLES:
            more = _LIST_ELSEWHERE if key == "agents" else suggestion(key, list(_TABLES), _KNOWN_TABLES)
            yield f'{reader.place(key)} unknown key "{key}".{more}'


def _wrong_paths(file: AgentsFile, reader: _Reader) -> Iterator[str]:
    for name, worker in file.workers.items():
        if not file.path_of(worker.cwd).is_dir():
            yield f"{reader.place(f'workers.{name}')} cwd: {file.path_of(worker.cwd)} is not a folder."
    for name, announced in file.announced.items():
        place, token_file = reader.place(f"announce.{name}"), announced.agent_token_file
        if announced.role is None and not is_role(name):
            yield f"{place} {name} is not a role (lowercase letters, digits, . _ -; not a reserved word). Add the key role."
        if token_file is not None and not file.path_of(token_file).is_file():
            yield f"{place} agent_token_file: there is no {file.path_of(token_file)}."
