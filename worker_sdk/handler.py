"""Maps a handler's signature to its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from worker_sdk.context import Task
from worker_sdk.words import Message


class Form(Enum):
    PLAIN = "plain"
    COROUTINE = "coroutine"
    GENERATOR = "generator"


_SOURCES: dict[Any, Callable[[Message, Task], Any]] = {
    str: lambda message, task: message.text,
    Message: lambda message, task: message,
    Task: lambda message, task: task,
}


class Handler:
    """A function and how to call it. An unusable signature raises TypeError here, at decoration."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.form = _form_of(function)
        self.description = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        self._sources = _sources_of(function)

    def call(self, message: Message, task: Task) -> Any:
        """Returns a result, a coroutine or an async generator, depending on `form`."""
        return self._function(**{name: source(message, task) for name, source in self._sources.items()})


def _form_of(function: Callable[..., Any]) -> Form:
    if inspect.isasyncgenfunction(function):
        return Form.GENERATOR
    if inspect.iscoroutinefunction(function):
        return Form.COROUTINE
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{_name(function)} is a plain generator: write `async def` to make it an async generator")
    if not callable(function):
        raise TypeError("on_message takes a function")
    return Form.PLAIN


def _sources_of(function: Callable[..., Any]) -> dict[str, Callable[[Message, Task], Any]]:
    sources = {}
    for parameter in inspect.signature(function).parameters.values():
        annotation = _resolved(parameter.annotation, function)
        if annotation in _SOURCES and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            sources[parameter.name] = _SOURCES[annotation]
        elif parameter.default is parameter.empty:
            problem = "has no annotation" if annotation is parameter.empty else f"is annotated as {parameter.annotation!r}"
            raise TypeError(f'{_name(function)}: parameter "{parameter.name}" {problem}; use str, Message or Task')
    return sources


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """Under `from __future__ import annotations` an annotation is a string. A name that exists only inside a function, or
    only for type checkers, is matched by its last part.
    """
    try:
        while isinstance(annotation, str):
            annotation = eval(annotation, getattr(function, "__globals__", {}))
        return annotation
    except (NameError, AttributeError):
        last = annotation.rpartition(".")[2]
        return next((known for known in _SOURCES if known.__name__ == last), annotation)


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", function))
