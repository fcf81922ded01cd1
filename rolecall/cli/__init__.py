"""The command `rolecall`. Each command imports its heavy modules itself."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from rolecall import __version__
from rolecall.cli.installed import HOW, missing_packages
from rolecall.cli.output import CommandError, print_error
from rolecall.errors import ConfigError, HubError, StoreError

_EXIT_CODES = """\b
Exit codes:
  0 done                 5 no live worker, no such role or skill
  1 failed or rejected   6 timed out
  2 usage or settings    7 the agent needs input
  3 hub unreachable      8 the stream was lost
  4 not authenticated    130 interrupted
"""


COMPLETE = "_ROLECALL_COMPLETE"
"""The variable that is set where a shell asks for completions."""


class _Entry(NamedTuple):
    module: str
    about: str


_COMMANDS = {
    "init": _Entry("up.init", "Write a worker, its test and an agents.toml."),
    "up": _Entry("up.command", "Run the workers of agents.toml in one console, and a hub if none runs."),
    "dev": _Entry("server.serve", "Run the hub and three demo workers, and print what to try."),
    "serve": _Entry("server.serve", "Run the hub."),
    "worker": _Entry("workers", "Run workers."),
    "announce": _Entry("workers", "Hold a lease for an A2A server that already runs."),
    "send": _Entry("talk.send", "Send a message to a role and print what it answers."),
    "chat": _Entry("talk.chat", "Talk to a role, line by line."),
    "inbox": _Entry("talk.inbox", "What waits for a person: list it, answer it."),
    "logs": _Entry("watch.logs", "Workers and tasks, as they come and go."),
    "top": _Entry("watch.top", "Roles, load and tasks, in place."),
    "agents": _Entry("agents.command", "The live workers: list, show, drain and undrain, remove."),
    "roles": _Entry("agents.command", "The roles that live workers serve."),
    "tasks": _Entry("tasks.command", "Tasks: list, show, follow, save, cancel, export, erase."),
    "tokens": _Entry("server.tokens", "Tokens of clients and workers: make, list, revoke."),
    "backup": _Entry("server.backup", "Copy a hub's data folder, also while the hub runs."),
    "doctor": _Entry("doctor.command", "Check everything between here and an answer; print what to do."),
    "ping": _Entry("ping", "Check the hub's health."),
    "config": _Entry("server.config", "Show or validate the hub's settings."),
    "completion": _Entry("completion", "Make a shell complete commands and live roles."),
    "version": _Entry("version", "Print the versions of Rolecall and what it runs on."),
}
"""The module of each command and its line in the help, in the order of the help. Those in `server` need the hub's packages."""


class _Commands(click.Group):
    """Imports a command when it is called, so that `send` never imports the hub, and the help imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = _COMMANDS.get(name)
        if entry is None:
            return None
        if entry.module.startswith("server.") and (missing := missing_packages()):
            return _not_installed(name, entry.about, missing)
        command: click.Command = getattr(import_module(f"rolecall.cli.{entry.module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Nobody reads any more, which is no failure as it is for click. Python must not report it when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.about) for name, entry in _COMMANDS.items()])


def _not_installed(name: str, about: str, missing: list[str]) -> click.Command:
    """A command in place of one that the base install cannot run. It takes any arguments, also `--help`, and ends with 2."""

    def refuse() -> None:
        problem = f"rolecall {name} needs the hub: {HOW} (missing: {', '.join(missing)})"
        raise CommandError(problem, "NOT_INSTALLED", 2)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, short_help=about, add_help_option=False, context_settings=anything)


@click.group(
    cls=_Commands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("--hub", metavar="URL", help="The hub, for every client command. [env: ROLECALL_HUB]")
@click.option("--token", metavar="TOKEN", help="Token for the hub. [env: ROLECALL_TOKEN, ROLECALL_TOKEN_FILE]")
@click.version_option(__version__, message="rolecall %(version)s")
def rolecall(hub: str | None, token: str | None) -> None:
    """A hub for A2A agents: workers enrol under a role, callers send to the role.

    Start with `rolecall dev`, then try what it prints.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. It ends with an exit code, and prints errors for people."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    if COMPLETE in os.environ:
        import_module("rolecall.cli.completion")  # click learns there how bash is answered
    try:
        code = rolecall.main(arguments, prog_name="rolecall", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        return 130
    except SystemExit as error:
        return _exit_code(error)
    except Exception as error:  # noqa: BLE001  the outermost frame: people get one line, no traceback
        problem = explained(error)
        print_error(problem)
        return problem.code
    return code if isinstance(code, int) else 0


def _exit_code(error: SystemExit) -> int:
    """The SDK ends a process with a code or a message."""
    if isinstance(error.code, str):
        print_error(CommandError(error.code, "CANNOT_START", 1))
        return 1
    return error.code or 0


def explained(error: Exception) -> CommandError:
    """Any error as one line for people."""
    from rolecall.cli.connect import problem_of
    from worker_sdk.errors import RolecallError

    if isinstance(error, CommandError):
        return error
    if isinstance(error, ConfigError):
        return CommandError(error.message, "CONFIG", 2)
    if isinstance(error, RolecallError):
        return problem_of(error)
    if isinstance(error, StoreError):
        return CommandError(error.message, "STORE", 2, "see --data-dir and --store")
    if isinstance(error, HubError):
        from rolecall.protocol.faults import row_of

        return CommandError(error.message, row_of(type(error)).reason, 1)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return CommandError(
        f"{type(error).__name__} at {place}", "INTERNAL", 1, "this is a bug in rolecall; please report this line"
    )
