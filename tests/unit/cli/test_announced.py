"""What `rolecall announce` says while it waits for a server."""

from __future__ import annotations

import pytest

from rolecall.cli.announced import AnnounceOptions, hold
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
