"""No audit, no service: what cannot be recorded is not begun. A hub that may serve without its audit log does not use this."""

from __future__ import annotations

from collections.abc import Sequence

from hub.inbound.middleware.audit import record
from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.origins import Origins
from hub.inbound.middleware.request import Request
from hub.ports.audit import AuditLog
from hub.ports.identity import Tokens
from rolecall.errors import AuditDown
from rolecall.model.principal import Principal

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_BEAT = "/heartbeat"
"""Without beats an outage of the audit log would end every worker."""


class RecordFirst(Authenticator):
    def __init__(
        self,
        audit_log: AuditLog,
        tokens: Tokens | None,
        hosts: Sequence[str] = (),
        origins: Origins | None = None,
        *,
        max_head: int,
        exposed: bool = False,
    ) -> None:
        super().__init__(tokens, hosts, origins, max_head=max_head, exposed=exposed)
        self._audit_log = audit_log

    def admit(self, request: Request) -> Principal | None:
        """In addition AuditDown."""
        principal = super().admit(request)
        if request.method not in _READING and not request.path.endswith(_BEAT):
            record(request.scope, "begins", request.path)
            if self._audit_log.failure:
                raise AuditDown
        return principal
