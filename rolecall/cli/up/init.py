"""`rolecall init`: the files to start from."""

from __future__ import annotations

from pathlib import Path

import click

from rolecall.cli.agents.example_call import quoted
from rolecall.cli.output import CommandError, print_data, print_notice

_WORKER = '''"""A worker that streams: each word is sent as soon as it is there."""

import asyncio
from collections.abc import AsyncIterator

from rolecall import Worker

worker = Worker("shouter", description="Repeats a text in capitals, word by word.")


@worker.on_message
async def shout(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word.upper() + " "
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    worker.run()
'''
_TEST = '''"""The worker without a port and without a hub. Run it with pytest: pip install pytest"""

import asyncio

from shouter import worker


def test_each_word_comes_by_itself_and_in_capitals() -> None:
    async def words() -> list[str]:
        async with worker.test() as bench:
            return [event.text async for event in bench.stream("any agent") if event.text]

    assert asyncio.run(words()) == ["ANY ", "AGENT "]
'''
_AGENTS = """# The workers that `rolecall up` runs, in one console with a hub.

[workers.shouter]
run = "shouter:worker"

# More of it, or other programs:
#
# instances = 2
#
# [workers.planner]
# command = ["node", "planner.js"]
#
# [announce.coder]
# url = "http://127.0.0.1:9000"
"""
_PYTEST = """# pytest reads its settings here, and none of a project that this folder may be in.

[pytest]
"""
FILES = {"shouter.py": _WORKER, "test_shouter.py": _TEST, "pytest.ini": _PYTEST, "agents.toml": _AGENTS}


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=".")
def init(folder: Path) -> None:
    """Write a streaming worker, its test and an agents.toml into DIR, or into this folder. No file is overwritten."""
    existing = [name for name in FILES if (folder / name).exists()]
    if existing:
        hint = "choose another folder: rolecall init DIR"
        raise CommandError(f"{_listed(existing)} of {folder.resolve()} would be overwritten", "FILE_EXISTS", 2, hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}", "CANNOT_WRITE", 1) from error
    print_notice(f"wrote {_listed(list(FILES))}. Now, and then in another terminal:", "dim")
    for line in next_commands(folder):
        print_data(line)


def next_commands(folder: Path) -> tuple[str, str]:
    from rolecall.cli.console.welcome import executable

    rolecall = executable()
    place = "" if folder == Path() else f" {quoted(str(folder))}"
    return f"{rolecall} up{place}", f'{rolecall} send shouter "any agent, any framework"'


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
