"""A browser front end of an origin that the hub's operator lists, and a page of any other origin."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.test_tokens import WORKERS, new_token
from tests.helpers.client import text_message
from tests.helpers.processes import start_hub, start_worker

LISTED, OTHER = "http://localhost:5173", "http://localhost:3000"
CALLS_WITH = (
    "Authorization, Content-Type, Last-Event-ID, A2A-Version, A2A-Extensions, X-API-Key, Idempotency-Key, Want-A2A-Task"
)


class Browser:
    """Sends what a page's `fetch` sends to another origin, and lets the page read only what CORS allows."""

    def __init__(self, http: httpx.Client, token: str) -> None:
        self.http = http
        self.token = token

    def fetch(self, origin: str, method: str, path: str, *, token: str | None = None, **more: object) -> httpx.Response | None:
        """None: the preflight was refused, or the page may not read the answer."""
        asks = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": CALLS_WITH.lower()}
        site = {"Origin": origin, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
        asked = self.http.options(path, headers={**site, **asks})
        assert asked.status_code == (204 if origin == LISTED else 403)
        named = {name.strip().lower() for name in asked.headers.get("access-control-allow-headers", "").split(",")}
        methods = {name.strip() for name in asked.headers.get("access-control-allow-methods", "").split(",")}
        fits = method in methods and named >= {name.strip().lower() for name in CALLS_WITH.split(",")}
        if not (asked.is_success and _readable(asked, origin) and fits):
            return None
        shown = {"Authorization": f"Bearer {self.token if token is None else token}"}
        given = more.pop("headers", {})
        assert isinstance(given, dict)
        answer = self.http.request(method, path, headers={**site, **shown, **given}, **more)  # type: ignore[arg-type]
        return answer if _readable(answer, origin) else None

    def post_without_preflight(self, origin: str, path: str, document: object) -> httpx.Response:
        """As a form or a `no-cors` fetch does."""
        shown = {"Authorization": f"Bearer {self.token}", "Origin": origin}
        return self.http.post(path, json=document, headers=shown)


def _readable(answer: httpx.Response, origin: str) -> bool:
    values = answer.headers.get_list("access-control-allow-origin")
    return values == [origin] and "Origin" in answer.headers.get_list("vary")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    data = tmp_path_factory.mktemp("origins")
    token = new_token(data, "--name", "root", "--kind", "admin")
    with (
        start_hub(data, allowed_origins=f"https://app.example.com, {LISTED}/") as hub,
        start_worker(f"{WORKERS}:counter", "counter:a", hub.url, log=data / "w.log", env={"ROLECALL_TOKEN": token}),
        httpx.Client(base_url=hub.url, trust_env=False) as http,
    ):
        yield Browser(http, token)


def call(method: str, params: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_a_listed_front_end_calls_streams_resumes_and_reads(browser: Browser) -> None:
    def fetch(method: str, path: str, **more: object) -> httpx.Response:
        found = browser.fetch(LISTED, method, path, **more)  # type: ignore[arg-type]
        assert found is not None, path
        return found

    stream = fetch("POST", "/agents/counter/", json=call("message/stream", text_message("3")))
    events = [line for line in stream.text.splitlines() if line.startswith("id:")]
    assert (stream.headers["content-type"], len(events) > 3) == ("text/event-stream; charset=utf-8", True)
    task = fetch("GET", "/registry/tasks").json()["tasks"][0]["id"]
    rest = fetch("POST", "/", json=call("tasks/resubscribe", {"id": task}), headers={"Last-Event-ID": "2"}).text
    assert [line for line in rest.splitlines() if line.startswith("id:")] == ["id: 2", *events[2:]]
    assert fetch("POST", "/", json=call("tasks/get", {"id": task})).json()["result"]["id"] == task
    assert fetch("GET", f"/v1/tasks/{task}").json()["id"] == task
    assert fetch("GET", "/registry/agents").json()["count"] == 1
    card = fetch("GET", "/agents/counter/.well-known/agent-card.json")
    assert "ETag" in card.headers["access-control-expose-headers"]
    assert fetch("GET", "/.well-known/ai-catalog.json").status_code == 200
    assert fetch("POST", "/registry/agents/counter:a/drain", json={}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/agents", "/registry/agents/x:y/heartbeat", "/message:send", "/nowhere"])
def test_a_listed_front_end_can_read_why_it_was_refused(browser: Browser, path: str) -> None:
    refused = browser.fetch(LISTED, "POST", path, token="rc_wrong", json={})
    assert refused is not None
    assert refused.status_code == 401
    assert "UNAUTHENTICATED" in refused.text


@pytest.mark.parametrize(
    "path", ["/", "/agents/counter/", "/registry/agents/counter:a/drain", "/registry/agents", "/message:send"]
)
@pytest.mark.parametrize("origin", [OTHER, "null", "http://localhost:5173.evil.example", "https://evil.example"])
def test_a_page_of_another_origin_changes_and_reads_nothing(browser: Browser, origin: str, path: str) -> None:
    assert browser.fetch(origin, "POST", path, json={}) is None
    refused = browser.post_without_preflight(origin, path, call("message/send", text_message("1")))
    assert refused.status_code == 403
    assert "ROLECALL_ALLOWED_ORIGINS" in refused.text


def test_a_page_of_another_origin_reads_no_more_than_public_cards(browser: Browser) -> None:
    origin = {"Origin": OTHER, "Authorization": f"Bearer {browser.token}"}
    for path in ("/registry/agents", "/registry/tasks", "/health", "/metrics"):
        answer = browser.http.get(path, headers=origin)
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (200, False), path
    card = browser.http.get("/.well-known/agent-card.json", headers={"Origin": OTHER})
    assert card.headers["access-control-allow-origin"] == "*"
