"""The token in each request to a hub. Imports httpx, so it is imported by whoever opens a client."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from worker_sdk.config import TokenFile


class TokenAuth(httpx.Auth):
    """The token as it is now. A request that the hub refuses with 401 is sent once more if the file has another token by then:
    the hub has not run it.
    """

    def __init__(self, token: str | TokenFile | None) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._token is None:
            yield request
            return
        sent = str(self._token)
        request.headers["authorization"] = f"Bearer {sent}"
        response = yield request
        # A body that is made while it is sent cannot be sent again.
        if response.status_code != 401 or not isinstance(request.stream, httpx.ByteStream):
            return
        found = self._token.read() if isinstance(self._token, TokenFile) else sent
        if found != sent:
            request.headers["authorization"] = f"Bearer {found}"
            yield request
