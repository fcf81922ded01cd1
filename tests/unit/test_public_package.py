"""The public names: which modules their import loads, and the effect of a user's modules with the same names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rolecall
import worker_sdk

SHARED = "import rolecall.model.a2a, rolecall.protocol.codec, rolecall.errors"
FIRST = {"the SDK first": "import worker_sdk", "rolecall first": SHARED}
OWN_WORKER = """
import hub
from rolecall import Worker, testing

worker = Worker("own")


@worker.on_message
def answer(text: str) -> str:
    return hub.GREETING + text
"""
TYPED = """
from pydantic import BaseModel
from rolecall import HubClient, Reply, Task, TaskState, Worker

worker = Worker("typed")


class Order(BaseModel):
    what: str


class Invoice(BaseModel):
    total: float


@worker.skill("price")
async def price(order: Order, task: Task) -> Invoice:
    reveal_type(await task.call("typed", order, returns=Invoice))
    reveal_type(await task.call("typed", order, questions="raise"))
    return Invoice(total=len(order.what))


async def ask(hub: HubClient) -> TaskState:
    reply: Reply = await hub.send_to_agent("echo", "hi")
    reveal_type(await hub.call("typed", Order(what="tea"), returns=Invoice, skill="price"))
    reveal_type(await hub.call("typed", [Order(what="tea"), "please"]))
    async with hub.stream("typed", Order(what="tea")) as stream:
        async for event in stream:
            reveal_type(event.as_model(Invoice))
            reveal_type(event.progress)
    async with worker.test() as bench:
        reveal_type(await bench.call(Order(what="tea"), returns=Invoice))
    await hub.call("typed", 7)
    return reply.state


reveal_type(worker.role)
reveal_type(price)
no_such: int = worker.role
"""


def loaded(code: str, *modules: str, cwd: Path | None = None) -> str:
    """Those of `modules` that a new interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint(*[name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_public_names_are_those_of_the_sdk() -> None:
    assert {*rolecall.__all__} == {*worker_sdk.__all__, "testing"}
    for name in worker_sdk.__all__:
        assert getattr(rolecall, name) is getattr(worker_sdk, name)
    assert set(rolecall.__all__) <= set(dir(rolecall))
    with pytest.raises(AttributeError, match="no attribute 'Wörker'"):
        getattr(rolecall, "Wörker")  # noqa: B009  no identifier that a checker would take


def test_the_shared_modules_load_neither_the_sdk_nor_an_http_client() -> None:
    assert loaded(SHARED, "worker_sdk", "httpx", "click", "hub", "hypercorn") == ""


@pytest.mark.parametrize("first", FIRST)
def test_the_public_names_can_be_imported_in_either_order(first: str) -> None:
    code = f"{FIRST[first]}\nfrom rolecall import Worker, HubClient\nimport rolecall.model.a2a, worker_sdk"
    assert loaded(code, "worker_sdk", "hub", "httpx", "quart") == "worker_sdk"


@pytest.mark.parametrize(
    "arguments",
    [
        "['worker', 'run', 'absent:worker']",
        "['send', 'echo', 'hi']",
        "['announce', 'echo', 'http://127.0.0.1:9', '--wait', '0']",
        "['agents', 'ls']",
        "['roles', 'ls']",
        "['tasks', 'ls']",
        "['ping']",
        "['version']",
        "['--help']",
    ],
)
def test_commands_of_a_client_and_a_worker_import_neither_the_hub_nor_pydantic(arguments: str, module_folder: Path) -> None:
    code = f"""
from rolecall.cli import run
import os
os.environ["ROLECALL_HUB"] = "http://127.0.0.1:9"
sys.stdout = sys.stderr
run({arguments})
sys.stdout = sys.__stdout__"""
    assert loaded(code, "hub", "quart", "aiosqlite", "pydantic", cwd=module_folder) == ""


def test_a_worker_that_answers_a_call_has_not_imported_pydantic(module_folder: Path) -> None:
    code = """
import asyncio
from rolecall import Worker
worker = Worker("own")
@worker.on_message
def answer(text: str) -> str:
    return text
async def main():
    async with worker.test() as bench:
        assert (await bench.send("hi")).text == "hi"
asyncio.run(main())"""
    assert loaded(code, "worker_sdk", "pydantic", cwd=module_folder) == "worker_sdk"


async def test_a_worker_and_a_client_with_models_import_it(tmp_path: Path) -> None:
    code = """
import asyncio
from rolecall import Worker
worker = Worker("own")
before = "pydantic" in sys.modules
from pydantic import BaseModel
class Order(BaseModel):
    what: str
@worker.on_message
def answer(order: Order) -> Order:
    return order
async def main():
    async with worker.test() as bench:
        assert await bench.call(Order(what="tea"), returns=Order) == Order(what="tea")
asyncio.run(main())
assert not before"""
    assert loaded(code, "pydantic", "pydantic_settings", cwd=tmp_path) == "pydantic"


@pytest.fixture
def module_folder(tmp_path: Path) -> Path:
    """A folder in which `import pydantic` always finds something."""
    (tmp_path / "pydantic.py").touch()
    assert loaded("import pydantic", "pydantic", cwd=tmp_path) == "pydantic"
    return tmp_path


@pytest.mark.parametrize("own", ["hub.py", "hub/__init__.py"])
def test_a_worker_may_have_its_own_module_named_hub(tmp_path: Path, own: str) -> None:
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text("GREETING = 'mine: '\n")
    (tmp_path / "worker.py").write_text(OWN_WORKER)
    script = (
        "import asyncio, worker\n"
        "async def main():\n"
        "    async with worker.worker.test() as bench:\n"
        "        print((await bench.send('hi')).text)\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout.strip(), done.returncode) == ("mine: hi", 0), done.stderr
    command = [sys.executable, "-m", "rolecall.cli", "agents", "ls", "--hub", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3, done.stderr


def test_a_type_checker_sees_the_public_types(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "mine.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    found = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("mine.py")]
    assert [line for line in found if "note: Revealed" in line or ("error:" in line and "No overload" not in line)] == [
        'note: Revealed type is "mine.Invoice"',
        'note: Revealed type is "worker_sdk.calling.reply.Reply"',
        'note: Revealed type is "mine.Invoice"',
        'note: Revealed type is "worker_sdk.calling.reply.Reply"',
        'note: Revealed type is "mine.Invoice"',
        'note: Revealed type is "tuple[float, float | None, fallback=worker_sdk.words.Progress] | None"',
        'note: Revealed type is "mine.Invoice"',
        'note: Revealed type is "str"',
        'note: Revealed type is "def (order: mine.Order, task: worker_sdk.context.Task)'
        ' -> typing.Coroutine[Any, Any, mine.Invoice]"',
        'error: Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]',
    ], done.stdout
    assert sum("No overload" in line for line in found) == 1
