"""`[[agents]]` of rolecall.toml: agents that do not enrol, and whose leases the hub holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from hub.settings.entries import ENTRY, KeyText, entry_problems, keys_of
from hub.settings.fields import Expected, refusal
from hub.settings.sources import AGENTS
from hub.settings.values import LocalPath, Role, Text, Url, below
from rolecall.errors import ConfigError
from rolecall.model.ids import is_instance
from rolecall.toml_file import line_within, read_toml

_HEADER = re.compile(r"""^[ \t]*\[\[[ \t]*["']?agents["']?[ \t]*\]\]""", re.MULTILINE)
_MOST_LABELS, _LONGEST_CREDENTIAL = 32, 4096
_VISIBLE = re.compile(r"[ -~]+")


def _instance(text: str) -> str:
    if not is_instance(text):
        raise ValueError
    return text


def _authorization_in(path: Path) -> str:
    """A token alone is a bearer token."""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise refusal(f"{path} cannot be read as UTF-8 text.") from None
    if not text or len(text) > _LONGEST_CREDENTIAL or not _VISIBLE.fullmatch(text):
        raise refusal(f"{path} must hold one line of ASCII: a token, or the whole value of an Authorization header.")
    return text if " " in text else f"Bearer {text}"


def _credential_file(path: Path) -> Path:
    _authorization_in(path)
    return path


def _no_password(url: object) -> object:
    if isinstance(url, str) and "@" in url.partition("://")[2].partition("/")[0]:
        raise refusal("must not hold a user or password: use credential_file")
    return url


AgentUrl = Annotated[Url, BeforeValidator(_no_password)]
CredentialFile = Annotated[LocalPath, AfterValidator(_credential_file), Expected("a path")]
Instance = Annotated[Text, AfterValidator(_instance), Expected("an instance name (letters, digits, . _ : -)")]
Label = Annotated[str, StringConstraints(max_length=256)]
Labels = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=128)], Label],
    Field(max_length=_MOST_LABELS),
    Expected(f"a table of at most {_MOST_LABELS} short texts"),
]


class _Entry(BaseModel):
    """One `[[agents]]`. Below each key is what people read of it in docs/reference/configuration.md."""

    model_config = ENTRY

    role: Role
    """The role that it serves."""

    url: AgentUrl
    """Where the hub reaches it. A name with several addresses is an agent per address, unless `instance` is given."""

    instance: Instance | None = None
    """Its name within the role. Without it: its address and port, such as 10.1.2.3-9000."""

    credential_file: CredentialFile | None = None
    """A file with the token that the hub sends to it as `Authorization: Bearer …`, or with that header's whole value; a
    relative path is relative to rolecall.toml."""

    labels: Labels = Field(default_factory=dict)
    """Labels for filters, such as `labels = {zone = "a"}`."""


@dataclass(frozen=True, slots=True)
class AgentSetting:
    """An agent of the file. `origin`: the file and the line. `authorization`: the header for it; None: none."""

    origin: str
    role: str
    url: str
    instance: str | None = None
    credential_file: Path | None = None
    labels: tuple[tuple[str, str], ...] = ()
    authorization: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.role}:{self.instance}" if self.instance else self.role

    def shown(self) -> dict[str, Any]:
        """As in the file: without the secret, which the file does not hold either."""
        members = {"role": self.role, "url": self.url, "instance": self.instance, "labels": dict(self.labels)}
        path = str(self.credential_file) if self.credential_file else None
        return {key: value for key, value in {**members, "credential_file": path}.items() if value}


def keys() -> Iterator[KeyText]:
    return keys_of(_Entry)


def read_file(path: Path | None) -> Sequence[AgentSetting]:
    """`[[agents]]` of that file, and nothing else of it. ConfigError; None: no agents."""
    if path is None:
        return ()
    document, content = read_toml(path)
    agents, problems = read_table(document.get(AGENTS, []), content, path)
    if problems:
        raise ConfigError(problems)
    return agents


def read_table(table: Any, content: str, path: Path) -> tuple[Sequence[AgentSetting], list[str]]:
    """The agents that are right, and what is wrong with the others."""
    if not isinstance(table, list) or not all(isinstance(entry, dict) for entry in table):
        return (), [f"{path}: agents must be written as [[agents]], once for each agent."]
    lines: list[int | None] = [content.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(content)]
    lines += [None] * (len(table) - len(lines))
    agents: list[AgentSetting] = []
    problems: list[str] = []
    for written, line in zip(table, lines, strict=False):
        origin = f"{path}:{line}" if line else str(path)
        entry = {key: below(path.parent, value) if key == "credential_file" else value for key, value in written.items()}
        try:
            agents.append(_agent(_Entry.model_validate(entry), origin))
        except ValidationError as error:
            place = partial(_place, path, line, content)
            problems += entry_problems(error, _Entry, entry, place, "[[agents]]")
        except PydanticCustomError as error:  # its credential has just gone
            problems.append(f"{origin}: credential_file: {error.message()}")
    problems += _duplicates(agents)
    return tuple(agents), problems


def _place(path: Path, line: int | None, content: str, key: str) -> str:
    return f"{path}:{line_within(line, key, content)}" if line else str(path)


def _agent(entry: _Entry, origin: str) -> AgentSetting:
    authorization = _authorization_in(entry.credential_file) if entry.credential_file else None
    labels = tuple(sorted(entry.labels.items()))
    return AgentSetting(origin, entry.role, entry.url, entry.instance, entry.credential_file, labels, authorization)


def read_again(agents: Sequence[AgentSetting]) -> tuple[Sequence[AgentSetting], list[str]]:
    """The agents with what their credential files hold now, and what is wrong with such files: there the one before stays."""
    now: list[AgentSetting] = []
    problems: list[str] = []
    for agent in agents:
        try:
            authorization = _authorization_in(agent.credential_file) if agent.credential_file else None
            now.append(replace(agent, authorization=authorization))
        except PydanticCustomError as error:
            now.append(agent)
            problems.append(f"{agent.origin}: credential_file: {error.message()}")
    return now, problems


def _duplicates(agents: Sequence[AgentSetting]) -> Iterator[str]:
    """Two with one name, or of one address."""
    seen: dict[tuple[str, str], AgentSetting] = {}
    for agent in agents:
        first = seen.setdefault((agent.role, agent.instance or urlsplit(agent.url).netloc.lower()), agent)
        if first is not agent:
            what = agent.name if agent.instance else f"{agent.role} at {agent.url}"
            yield f"{agent.origin}: {what} is there already ({first.origin}). Give each an instance of its own."
