"""Two settings limit a request's head and a worker's card. The refusal names the setting."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.helpers.processes import start_hub

OFFER = {"url": "http://127.0.0.1:9/", "boot": "b"}


def asked(url: str, size: int, *, headers: int = 1) -> httpx.Response:
    """A request with about `size` bytes of headers."""
    more = {f"x-{number}": "a" * (size // headers) for number in range(headers)}
    return httpx.get(f"{url}/livez", headers=more, trust_env=False, timeout=20)


def enrolled(url: str, size: int) -> httpx.Response:
    card = {"name": "large", "description": "x" * size, "skills": []}
    return httpx.put(f"{url}/registry/agents/large/a", json={**OFFER, "card": card}, trust_env=False, timeout=20)


def test_a_head_may_be_as_large_as_its_setting_says(tmp_path: Path) -> None:
    with start_hub(tmp_path / "small", max_head="8KiB") as hub:
        assert asked(hub.url, 7_000).status_code == 200
        refused = asked(hub.url, 9_000)
        assert (refused.status_code, refused.json()["reason"]) == (431, "HEAD_TOO_LARGE")
        assert "8192 bytes" in refused.json()["detail"] and "ROLECALL_MAX_HEAD" in refused.json()["detail"]
    with start_hub(tmp_path / "large", max_head="200KiB") as hub:
        assert asked(hub.url, 190_000, headers=4).status_code == 200
        assert asked(hub.url, 210_000, headers=4).status_code == 431


def test_a_head_without_end_is_refused_by_the_same_setting(tmp_path: Path) -> None:
    with start_hub(tmp_path, max_head="8KiB") as hub:
        refused = asked(hub.url, 40_000)
        assert (refused.status_code, refused.json()["reason"]) == (431, "HEAD_TOO_LARGE")
        assert "ROLECALL_MAX_HEAD" in refused.json()["detail"]


def test_a_card_may_be_as_large_as_its_setting_says(tmp_path: Path) -> None:
    with start_hub(tmp_path / "small", max_card="2KiB") as hub:
        assert enrolled(hub.url, 1_000).status_code == 201
        refused = enrolled(hub.url, 3_000)
        assert (refused.status_code, refused.json()["reason"]) == (422, "OFFER_INVALID")
        assert "2048 bytes" in refused.json()["detail"] and "ROLECALL_MAX_CARD" in refused.json()["detail"]
    with start_hub(tmp_path / "large", max_card="256KiB") as hub:
        assert enrolled(hub.url, 200_000).status_code == 201
