"""Streams, calls and feeds are held: a workspace that takes all it can get leaves the other its part."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.acceptance.neighbours.rig import BUSY, QUIET, Neighbours, neighbours


def _open_feed(pair: Neighbours, workspace: str, kind: str, feeds: ExitStack, path: str = "/registry/events") -> httpx.Response:
    answer = feeds.enter_context(pair.http.stream("GET", pair.hub.url + path, headers=pair.headers(workspace, kind)))
    if answer.status_code == 200:
        lines = answer.iter_lines()
        next(lines)
        feeds.callback(lambda: lines)
    else:
        answer.read()
    return answer


def test_a_workspace_with_all_its_streams_open_leaves_the_other_its_part(tmp_path: Path) -> None:
    limits = {"max_streams": 6, "max_streams_per_workspace": 4, "keep_alive": 0.5}
    with neighbours(tmp_path, **limits) as pair, ExitStack() as feeds, pair.unharmed():
        paths = ["/registry/events", "/registry/tasks/events"] * 2
        answers = [_open_feed(pair, BUSY, kind, feeds, path) for kind in ("client", "client-2") for path in paths]
        assert sorted(answer.status_code for answer in answers) == [*[200] * 4, *[503] * 4]
        refused = {answer.json()["detail"] for answer in answers if answer.status_code == 503}
        assert len(refused) == 1 and "ROLECALL_MAX_STREAMS_PER_WORKSPACE" in refused.pop()
        assert [_open_feed(pair, QUIET, "client", feeds).status_code for _ in range(3)] == [200, 200, 503]
