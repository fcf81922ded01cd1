"""`python -m worker_sdk --agent-name ROLE --agent-description TEXT --server URL [module:worker]`"""

from __future__ import annotations

import click

from worker_sdk.config import read_settings
from worker_sdk.errors import ConfigError
from worker_sdk.load import load_worker
from worker_sdk.worker import Worker


@click.command(name="python -m worker_sdk")
@click.argument("target", metavar="[MODULE:WORKER]", required=False)
@click.option("--agent-name", help="Role, or role:instance. Default: A2A_AGENT_NAME, else the worker's own.")
@click.option("--agent-description", help="One line for people. Default: A2A_AGENT_DESCRIPTION.")
@click.option("--server", help="The hub's address. Default: ROLECALL_HUB, A2A_SERVER_URL, else http://127.0.0.1:8420.")
@click.option("--agent-url", help="Where the hub reaches this worker. Default: A2A_AGENT_URL, else detected.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on. Default: PORT, else a free one.")
def main(
    target: str | None,
    agent_name: str | None,
    agent_description: str | None,
    server: str | None,
    agent_url: str | None,
    host: str,
    port: int | None,
) -> None:
    """Run a worker until a signal comes. Without MODULE:WORKER, run one that returns each message."""
    try:
        settings = read_settings()
        name, description = agent_name or settings.agent_name, agent_description or settings.agent_description
        worker = load_worker(target) if target else _echo(name or "echo")
        if name:
            worker.rename(name)
        if description:
            worker.description = description
        worker.run(host=host, port=port, hub=server, url=agent_url)
    except (ConfigError, ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error


def _echo(name: str) -> Worker:
    worker = Worker(name)

    @worker.on_message
    async def repeat(text: str) -> str:
        """Returns each message."""
        return text

    return worker


if __name__ == "__main__":
    main()
