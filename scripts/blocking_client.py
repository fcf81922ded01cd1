"""Writes worker_sdk/calling/blocking/client.py from the client that it runs: the same methods, without `await`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "worker_sdk/calling/client.py"
FILE = ROOT / "worker_sdk/calling/blocking/client.py"
_HEAD = '''"""The client for scripts and notebooks, also where an event loop runs. Written by scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TypeVar

from worker_sdk.calling.blocking.loop import HubFeed, HubStream, LoopThread
from worker_sdk.calling.client import _GIVE_UP_AFTER, DEFAULT_TIMEOUT
from worker_sdk.calling.client import HubClient as AsyncHubClient
# imports

_T = TypeVar("_T")


class HubClient:
    """`with HubClient() as hub: print(hub.call("echo", "hi").text)`. As the client of `rolecall` in all else.

    It has a thread with an event loop, so it works where another loop runs, too. Leaving the block, or `close()`, ends both.
    Ctrl-C ends a wait; the task goes on.
    """

'''
_OWN = '''
    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            try:
                self._thread.run(self._hub.__aexit__(None, None, None))
            finally:
                self._thread.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for something of the other client's, such as `file.save(folder)`."""
        return self._thread.run(work)
'''


def page() -> str:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (client,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "HubClient")
    methods = [node for node in client.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    text = _HEAD.replace("# imports\n", _imports(tree))
    for method in methods:
        if method.name == "__init__":
            text += _text(method, [f"self._hub = AsyncHubClient({_passed_on(method)})", "self._thread = LoopThread()"])
            text += "        self._closed = False\n        self.url = self._hub.url\n" + _OWN
        elif not method.name.startswith("_"):
            text += _text(method, _call(method))
    return _in_format(text)


def _imports(tree: ast.Module) -> str:
    """Those of the other client, of which the unused ones go later."""
    blocks = [node for node in tree.body if isinstance(node, ast.ImportFrom | ast.If)]
    lines = [ast.unparse(node) for node in blocks]
    return "\n".join(line for line in lines if not any(name in line for name in ("HubStream", "HubFeed", "__future__"))) + "\n"


def _text(method: ast.FunctionDef | ast.AsyncFunctionDef, body: list[str]) -> str:
    is_overload = any(isinstance(one, ast.Name) and one.id == "overload" for one in method.decorator_list)
    documented = ast.get_docstring(method, clean=False)
    made: list[ast.stmt] = [ast.Expr(ast.Constant(documented))] if documented and method.name != "__init__" else []
    made += [ast.Expr(ast.Constant(...))] if is_overload else [ast.parse(line).body[0] for line in body]
    plain = ast.FunctionDef(method.name, method.args, made, method.decorator_list, method.returns)
    lines = ast.unparse(ast.fix_missing_locations(plain)).splitlines()
    return "\n" + "".join(f"    {line}\n" for line in lines)


def _call(method: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    call = f"self._hub.{method.name}({_passed_on(method)})"
    if not isinstance(method, ast.AsyncFunctionDef):
        assert method.returns is not None
        return [f"return {ast.unparse(method.returns)}(self._thread, {call})"]
    if method.name != "call":
        return [f"return self._thread.run({call})"]
    # Its result has one of two types: its overloads say which.
    return [f"result: ModelT | Reply = self._thread.run_any({call})", "return result"]


def _passed_on(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    words = [argument.arg for argument in method.args.args[1:]]
    words += [f"{argument.arg}={argument.arg}" for argument in method.args.kwonlyargs]
    return ", ".join(words)


def _in_format(text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    for words in (("check", "--fix", "--quiet", "--select", "F401,I"), ("format", "--quiet")):
        command = [str(ruff), *words, "--stdin-filename", str(FILE), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    return text


def main() -> None:
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
