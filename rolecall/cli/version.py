"""`rolecall version`."""

from __future__ import annotations

import click

from rolecall.cli.output import say, say_facts, say_json


@click.command()
@click.option("--json", "as_json", is_flag=True)
def version(as_json: bool) -> None:
    """Print the version of Rolecall, and of what it runs on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    from rolecall import __version__

    facts = {"rolecall": __version__, "python": platform.python_version(), "platform": platform.platform(terse=True)}
    for name in ("quart", "hypercorn", "httpx"):
        try:
            facts[name] = version_of(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    if as_json:
        say_json(facts)
    else:
        say(f"rolecall {__version__}")
        say_facts([(name, value) for name, value in facts.items() if name != "rolecall"])
