"""`rolecall version`."""

from __future__ import annotations

import click

from rolecall.cli.output import print_data, print_facts, print_json


@click.command()
@click.option("--json", "as_json", is_flag=True)
def version(as_json: bool) -> None:
    """Print the versions of Rolecall, of the database that its hub writes, of Python and the main dependencies."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    from rolecall import __version__
    from rolecall.build import build
    from rolecall.schema import newest

    facts: dict[str, str | int] = {"rolecall": __version__, "build": build() or "unknown", "schema": newest()}
    facts |= {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    for name in ("quart", "hypercorn", "httpx"):
        try:
            facts[name] = version_of(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    if as_json:
        print_json(facts)
    else:
        print_data(f"rolecall {__version__}")
        print_facts([(name, value) for name, value in facts.items() if name != "rolecall"])
