"""What `rolecall announce` takes for an address, and what it says while it waits for a server."""

from __future__ import annotations

import pytest

from rolecall.cli.announced import AnnounceOptions, agent_url, hold
from rolecall.cli.output import CommandError
from tests.helpers.raw_server import RawServer, always, answer
from worker_sdk.config import HubAddress


@pytest.mark.parametrize(("status", "named"), [("401 Unauthorized", True), ("404 Not Found", False)])
async def test_a_server_that_asks_for_a_token_has_its_option_named(
    status: str, named: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.cli.announced._PAUSE", 0.01)
    async with RawServer(always(answer(b"", status=status))) as server:
        options = AnnounceOptions("planner", "a", server.url, capacity=None, wait=0.1)
        with pytest.raises(CommandError, match="no A2A card"):
            await hold(options, HubAddress("http://127.0.0.1:9", None, None))
    output = capsys.readouterr().err
    assert ("waiting for a card" in output, "--agent-token-file" in output) == (True, named)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://a:1/x", "http://a:1/x"),
        ("http://a:1/.well-known/agent-card.json", "http://a:1/"),
        ("http://a:1/x/.well-known/agent.json", "http://a:1/x/"),
        ("127.0.0.1:9471", "http://127.0.0.1:9471"),
        ("localhost/.well-known/agent.json", "http://localhost/"),
        ("agents.example.com:9", "https://agents.example.com:9"),
    ],
)
def test_the_url_of_a_card_or_an_address_also_tells_where_the_agent_is(given: str, expected: str) -> None:
    assert agent_url(given) == expected


@pytest.mark.parametrize("given", ["ftp://a/", "a", "9471", "http:///x", "127.0.0.1:port", "http://a:0/"])
def test_announce_refuses_what_is_no_url(given: str) -> None:
    with pytest.raises(CommandError, match="is not an http or https URL"):
        agent_url(given)
