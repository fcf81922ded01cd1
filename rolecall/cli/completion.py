"""`rolecall completion`: what makes a shell complete commands, options, and the roles and skills that are live."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

_WITHIN = 0.3
"""Seconds that a hub has to list its workers. A completion that comes late is in the way."""
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' answer type value
    answer=$(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" %(complete_var)s=bash_complete "$1")
    for answer in $answer; do
        IFS=',' read -r type value <<< "$answer"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashWords(BashComplete):
    """For bash a word ends at a colon too: it splits `role:instance` and addresses, and replaces what stands behind the last
    colon alone. Click takes the words as bash splits them.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        end = "."  # belongs to the last word, also if a blank or an open quote is before it
        words = split_arg_string(os.environ["COMP_LINE"] + end)
        return words[1:-1], words[-1].removesuffix(end)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        found = super().get_completions(args, incomplete)
        _, _, value = incomplete.rpartition("=")
        kept = value.removesuffix(os.environ["COMP_WORD"])
        for item in found:
            item.value = item.value.removeprefix(kept)
        return found


add_completion_class(BashWords)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete this command: put `eval "$(rolecall completion bash)"` into ~/.bashrc, the same with zsh
    into ~/.zshrc, or `rolecall completion fish | source` into ~/.config/fish/config.fish.

    Roles, instances and skills are completed from the hub, if it answers within 0.3 s.
    """
    from rolecall.cli import COMPLETE, rolecall

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(rolecall, {}, "rolecall", COMPLETE).source())


def complete_role(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Roles; behind a colon, the instances of one. Nothing if the hub cannot be asked, for whatever reason."""
    try:
        names = _live_names(context)
    except Exception:  # noqa: BLE001  a shell is waiting: silence is better than any report
        return []
    roles = {name.partition(":")[0] for name in names}
    found = names if ":" in incomplete else roles
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def complete_worker(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        return [CompletionItem(name) for name in sorted(_live_names(context)) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001  as above
        return []


def complete_skill(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those of the role that the command names, or of all."""
    # Click keeps the words before an option that lacks its value, but does not give them to their parameters.
    named = str(context.params.get("role") or next(iter(context.args), ""))
    try:
        agents = _live_agents(context)
    except Exception:  # noqa: BLE001  as above
        return []
    chosen = [agent for agent in agents if named in ("", agent["name"], agent["name"].partition(":")[0])]
    found = {str(skill["id"]) for agent in chosen for skill in agent["skills"]}
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def _live_names(context: click.Context) -> list[str]:
    return [str(agent["name"]) for agent in _live_agents(context)]


def _live_agents(context: click.Context) -> list[dict[str, Any]]:
    """By the standard library: an HTTP client of the SDK takes as long to be imported as there is time."""
    import json
    import ssl
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

    from worker_sdk.calling.proxies import proxy_towards
    from worker_sdk.calling.trust import tls_towards
    from worker_sdk.config import hub_address

    given = {**context.find_root().params, **{name: value for name, value in context.params.items() if value}}
    address = hub_address(given.get("hub"), given.get("token"))
    proxy = proxy_towards(address.url)
    tls: ssl.SSLContext = tls_towards(address.url, address.ca_file)
    proxies = {"http": proxy.url, "https": proxy.url} if proxy is not None else {}
    headers = {"authorization": f"Bearer {address.token}"} if address.token is not None else {}
    opener = build_opener(ProxyHandler(proxies), HTTPSHandler(context=tls))
    with opener.open(Request(f"{address.url}/registry/agents", headers=headers), timeout=_WITHIN) as answer:
        agents: list[dict[str, Any]] = json.load(answer)["agents"]
        return agents
