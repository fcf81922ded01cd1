"""Write docs/reference/python.md: every public name, from its signature and docstring. A test fails if it is not current."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import rolecall

FILE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
NOTE = "<!-- Written by scripts/python_reference.py. Change the code, then run it. -->\n"
_GROUPS = {
    "Workers": (
        "Worker",
        "Task",
        "Message",
        "File",
        "Status",
        "Artifact",
        "NeedInput",
        "Reject",
        "UserError",
        "TooLarge",
        "Lease",
        "LeaseState",
        "load_worker",
        "testing",
    ),
    "Clients": ("HubClient", "HubStream", "StreamEvent", "Progress", "Reply", "AgentInfo", "TaskState"),
}
"""What is in none of them is an error."""
_MODULE_OF_NAME = re.compile(r"\b(?:[a-z_][a-z0-9_]*\.)+(?=[A-Za-z_])")
_LINE = 110
_LONGEST_DEFAULT = 30


def page() -> str:
    grouped = {name for names in _GROUPS.values() for name in names}
    groups = {**_GROUPS, "Errors": tuple(name for name in rolecall.__all__ if name not in grouped)}
    lines = [
        "# The Python names",
        NOTE,
        "`from rolecall import Worker, HubClient, …`: these names are public, and what is not here may change. Each is",
        "imported when it is first used.",
        "",
    ]
    for group, names in groups.items():
        lines += [f"## {group}", ""]
        for name in names:
            if name in rolecall.__all__:
                lines += entry(name, getattr(rolecall, name))
    return "\n".join(lines).rstrip() + "\n"


def entry(name: str, value: Any) -> Iterator[str]:
    """The section of one public name."""
    yield f"### `{name}`"
    yield ""
    if isinstance(value, ModuleType):
        yield from _text(value.__doc__)
        for member in value.__all__:
            yield from _member(f"{name}.{member}", getattr(value, member))
        return
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield from _text(value.__doc__ if value.__doc__ != enum.Enum.__doc__ else None)
        yield ", ".join(f"`{one.name}` = `{one.value!r}`" for one in value)
        yield ""
        return
    if not (isinstance(value, type) and issubclass(value, Exception)):
        yield f"```python\n{name}{_signature(value)}\n```"
        yield ""
    if isinstance(value, type) and value.__bases__[0].__name__ in rolecall.__all__:
        yield f"A `{value.__bases__[0].__name__}`."
        yield ""
    yield from _text(inspect.getdoc(value) if _has_own_text(value) else None)
    if isinstance(value, type):
        for member, found in _members_of(value):
            yield from _member(member, found)


def _member(name: str, value: Any) -> Iterator[str]:
    kind = "async " if inspect.iscoroutinefunction(_function(value)) else ""
    text = _signature(value)
    if "\n" in text:
        yield f"**{kind}`{name}`**"
        yield ""
        yield f"```python\n{name}{text}\n```"
    else:
        yield f"**{kind}`{name}{text}`**"
    yield ""
    yield from _text(inspect.getdoc(value.fget) if isinstance(value, property) and value.fget else inspect.getdoc(value))


def _members_of(value: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of its own and of bases that are not public, as they are written; and those of `async with`."""
    seen: set[str] = set()
    for base in value.__mro__:
        if base is not value and (
            base.__name__ in rolecall.__all__ or base.__module__.split(".")[0] not in ("rolecall", "worker_sdk")
        ):
            continue
        for name, found in vars(base).items():
            if name.startswith("_") or name in seen or name in _field_names(value):
                continue
            if isinstance(found, property | staticmethod | classmethod) or inspect.isfunction(found):
                seen.add(name)
                yield name, found


def _field_names(value: type) -> set[str]:
    return {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()


def _has_own_text(value: Any) -> bool:
    """A dataclass without a docstring gets its signature as one."""
    text = getattr(value, "__doc__", None)
    return bool(text) and not text.startswith(f"{getattr(value, '__name__', '')}(")


def _text(text: str | None) -> Iterator[str]:
    if text:
        yield inspect.cleandoc(text)
        yield ""


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _signature(value: Any) -> str:
    """As it is written, without the modules of types. A long one has a line for each parameter."""
    called: Callable[..., Any] = _function(value)
    if isinstance(value, property) or not callable(called):
        return ""
    try:
        signature = inspect.signature(called)
    except ValueError:
        return "()"
    words = list(_parameters(signature))
    returns = signature.return_annotation
    result = "" if isinstance(value, type) or returns is inspect.Signature.empty else f" -> {_annotation(returns)}"
    line = f"({', '.join(words)}){result}"
    return line if len(line) <= _LINE else "(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, one in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and kind is not inspect.Parameter.KEYWORD_ONLY:
            yield "*"
        kind = one.kind
        annotation = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        yield f"{name}{annotation}{_default(one)}"


def _default(parameter: inspect.Parameter) -> str:
    """Three dots for one that cannot be written, or that is made for this process."""
    if parameter.default is parameter.empty:
        return ""
    text = repr(parameter.default)
    return f" = {'...' if text.startswith('<') or len(text) > _LONGEST_DEFAULT else text}"


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULE_OF_NAME.sub("", text)


def main() -> None:
    FILE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
