"""A new connection of a server with a certificate, until its TLS handshake is complete."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol, cast

from hub.server.accepting import next_connection
from hub.server.tls import HTTP_1, Certificate
from rolecall.errors import HubError

log = logging.getLogger(__name__)

_SHUTDOWN_TIMEOUT = 2.0
"""Seconds for the end of TLS when a connection closes."""


class SecureOwner(Protocol):
    """The server that accepts the connections."""

    certificate: Certificate | None
    head_timeout: float

    def opened(self, connection: Handshake) -> HubError | None:
        """Returns the error if there are too many connections."""

    def closed(self, connection: Handshake) -> None: ...
    def protocol_for(self, alpn: str) -> asyncio.Protocol:
        """What speaks the protocol that the client has chosen."""


class Handshake:
    """It counts as a connection from the start. asyncio's server tells of one only after its handshake: clients that never
    complete theirs could fill it.
    """

    deadline = write_deadline = float("inf")

    def __init__(self, owner: SecureOwner, connection: socket.socket) -> None:
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._socket = connection
        self._transport_has_socket = False
        """Then the transport closes it."""

    def start(self) -> None:
        """Refused connections are closed: an answer would cost a handshake."""
        if self._owner.opened(self) is None:
            self.task = asyncio.get_running_loop().create_task(self._run(), name="TLS handshake")
            self.task.add_done_callback(self._ended)
        else:
            self._socket.close()
            self._owner.closed(self)

    def complete(self, transport: asyncio.Transport) -> None:
        self._owner.closed(self)
        alpn = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = self._owner.protocol_for(alpn or HTTP_1)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    # --- called by the owner

    def expire(self, now: float) -> None:
        """It has a timeout of its own."""

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        certificate = self._owner.certificate
        assert certificate is not None
        self._transport_has_socket = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _ProtocolSelector(self),
                self._socket,
                ssl=certificate.context,
                ssl_handshake_timeout=self._owner.head_timeout,
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT,
            )
        except OSError as error:  # of TLS, too
            log.debug("handshake failed", extra={"event": "handshake_failed", "why": type(error).__name__})

    def _ended(self, _: asyncio.Task[None]) -> None:
        if not self._transport_has_socket:
            self._socket.close()
        self._owner.closed(self)


class _ProtocolSelector(asyncio.Protocol):
    """Stands in for the protocol until the handshake has decided which one it is."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.complete(cast(asyncio.Transport, transport))


async def accept_secure(owner: SecureOwner, listener: socket.socket) -> None:
    """Start a handshake with each client. Runs until it is cancelled."""
    while True:
        Handshake(owner, await next_connection(listener)).start()
