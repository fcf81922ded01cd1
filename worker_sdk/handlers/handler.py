"""Maps a handler's signature to its arguments."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from worker_sdk.context import Task
from worker_sdk.files.file import File
from worker_sdk.handlers.models import Mismatch, is_model, read_model, schema_of
from worker_sdk.words import Message

if TYPE_CHECKING:
    from pydantic import BaseModel


class Form(Enum):
    PLAIN = "plain"
    COROUTINE = "coroutine"
    GENERATOR = "generator"


class _Absent(Exception):
    """The message has nothing for this parameter. The text says what it needs."""


class _Source(NamedTuple):
    """`kinds`: of the parts that it reads."""

    read: Callable[[Message, Task], Any]
    kinds: frozenset[str]


class Parameter(NamedTuple):
    """`takes`: its annotation, without None. `otherwise`: its value if the message has nothing for it, as a tuple of one; an
    empty one if it has to be there. `expected`: it has no default and cannot be None.
    """

    name: str
    takes: Any
    source: _Source
    otherwise: tuple[Any, ...]
    expected: bool


class Handler:
    """A function and how to call it. An unusable signature raises TypeError here, at decoration."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.form = _form_of(function)
        self.description = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        self._parameters = list(_parameters_of(function))
        taken = [parameter.takes for parameter in self._parameters if is_model(parameter.takes)]
        _refuse_second(function, taken, "model", "put them into one model")
        files = [parameter.takes for parameter in self._parameters if parameter.takes in (File, list[File])]
        _refuse_second(function, files, "File", "take list[File]")
        given = list(dict.fromkeys(_models_in(_annotation(function, inspect.signature(function).return_annotation))))
        self.model = taken[0].__name__ if taken else ""
        """The name of the model that it takes."""
        self.input_schema: JsonObject | None = schema_of(taken, "validation") if taken else None
        self.output_schema: JsonObject | None = schema_of(given, "serialization") if given else None

    def sees(self, kinds: Collection[str]) -> bool:
        """Whether it takes something of parts of these kinds."""
        return any(not parameter.source.kinds.isdisjoint(kinds) for parameter in self._parameters)

    @property
    def expects_text(self) -> bool:
        return any(parameter.takes is str and parameter.expected for parameter in self._parameters)

    def arguments(self, message: Message, task: Task) -> dict[str, Any]:
        """InvalidParams: the message does not match the parameters."""
        arguments = {}
        for parameter in self._parameters:
            try:
                arguments[parameter.name] = parameter.source.read(message, task)
            except _Absent as absent:
                if not parameter.otherwise:
                    raise InvalidParams(f"{absent}.") from absent
                arguments[parameter.name] = parameter.otherwise[0]
            except Mismatch as mismatch:
                raise InvalidParams(str(mismatch)) from mismatch
        return arguments

    def call(self, arguments: dict[str, Any]) -> Any:
        """Returns a result, a coroutine or an async generator, depending on `form`."""
        return self._function(**arguments)


# --- where arguments come from


def _text(message: Message, task: Task) -> str:
    if not any(isinstance(part.get("text"), str) for part in message.parts):
        raise _Absent
    return message.text


def _files(message: Message, task: Task) -> list[File]:
    try:
        return [message.file(at) for at, part in enumerate(message.parts) if part.get("kind") == "file"]
    except ValueError as error:
        raise InvalidParams(f"{error}.") from error


def _file(message: Message, task: Task) -> File:
    _only(_parts(message, "file"), "file")
    return _files(message, task)[0]


def _model(model: type[BaseModel], message: Message, task: Task) -> BaseModel:
    where, part = _only(_parts(message, "data"), f"data part, for {model.__name__}")
    return read_model(model, part["data"], f"{where}.data")


def _parts(message: Message, kind: str) -> list[tuple[str, JsonObject]]:
    return [(f"message.parts[{at}]", part) for at, part in enumerate(message.parts) if part.get("kind") == kind]


def _only(parts: Sequence[tuple[str, JsonObject]], what: str) -> tuple[str, JsonObject]:
    if not parts:
        raise _Absent(f"The message must have a {what}")
    if len(parts) > 1:
        raise InvalidParams(f"The message must have one {what}, and has {len(parts)}.")
    return parts[0]


_TEXT, _DATA, _FILE = (frozenset({kind}) for kind in ("text", "data", "file"))
_SOURCES: dict[Any, _Source] = {
    str: _Source(_text, _TEXT),
    Message: _Source(lambda message, task: message, _TEXT | _DATA | _FILE),
    Task: _Source(lambda message, task: task, _TEXT | _DATA | _FILE),
    File: _Source(_file, _FILE),
    list[File]: _Source(_files, _FILE),
}


# --- signatures


def _form_of(function: Callable[..., Any]) -> Form:
    if not callable(function):
        raise TypeError("a handler is a function")
    called = function if hasattr(function, "__code__") or isinstance(function, partial) else type(function).__call__
    if inspect.isasyncgenfunction(called):
        return Form.GENERATOR
    if inspect.iscoroutinefunction(called):
        return Form.COROUTINE
    if inspect.isgeneratorfunction(called):
        raise TypeError(f"{_name(function)} is a plain generator: write `async def` to make it an async generator")
    return Form.PLAIN


def _parameters_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation(function, parameter.annotation)
        takes, optional = _without_none(annotation)
        source = _Source(partial(_model, takes), _DATA) if is_model(takes) else _source_of(takes)
        has_default = parameter.default is not parameter.empty
        if source is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            # A text that is not there is empty, as it is for a Message.
            absent = (parameter.default,) if has_default else (None,) if optional else ("",) if takes is str else ()
            yield Parameter(parameter.name, takes, source, absent, expected=not has_default and not optional)
        elif not has_default:
            problem = "has no annotation" if annotation is parameter.empty else f"is annotated as {annotation!r}"
            if isinstance(annotation, str):
                problem += ", which does not exist in its module"
            raise TypeError(
                f'{_name(function)}: parameter "{parameter.name}" {problem}; use str, Message, Task, File, list[File] or a '
                "model of pydantic, each with `| None` if it may be missing"
            )


def _source_of(takes: Any) -> _Source | None:
    """Compared one by one: an annotation may have no hash."""
    return next((source for known, source in _SOURCES.items() if known == takes), None)


def _refuse_second(function: Callable[..., Any], taken: Sequence[Any], what: str, instead: str) -> None:
    if len(taken) > 1:
        raise TypeError(f"{_name(function)} has {len(taken)} parameters for a {what}: {instead}")


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """`X | None` as X, and whether it was that. What `Annotated` adds is ignored."""
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        others = [part for part in get_args(annotation) if part is not types.NoneType]
        if len(others) == 1:
            return _without_none(others[0])[0], True
    return annotation, False


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if is_model(annotation):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)


def _annotation(function: Callable[..., Any], annotation: Any) -> Any:
    """Under `from __future__ import annotations` an annotation is a string. A name that exists only inside a function, or
    only for type checkers, is matched by its last part.
    """
    names = getattr(_function_in(function), "__globals__", {})
    try:
        while isinstance(annotation, str):
            annotation = eval(annotation, names)
        return annotation
    except (NameError, AttributeError, TypeError, SyntaxError):
        last = annotation.rpartition(".")[2]
        return next((known for known in _SOURCES if getattr(known, "__name__", "") == last), annotation)


def _function_in(function: Any) -> Any:
    """The function in a partial, a decorated function or an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__globals__") else type(function).__call__


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
