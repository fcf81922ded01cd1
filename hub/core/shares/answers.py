"""Memory for answers: those that are being made, and those that their clients have not taken yet."""

from __future__ import annotations

from hub.core.shares.share import SMALL, WorkspaceShare
from rolecall.errors import AnswerNotSent, Overloaded


class AnswerShare(WorkspaceShare):
    """An answer above the cap counts as the cap: so it can be sent, while its workspace has no other. A small one is in its
    connection's buffer at once, and a connection has one at a time.
    """

    def take(self, workspace: str, amount: int = 1) -> None:
        """AnswerNotSent."""
        counted = self._counted(amount)
        if counted:
            try:
                super().take(workspace, counted)
            except Overloaded as why:
                raise AnswerNotSent(amount, why) from None

    def give_back(self, workspace: str, amount: int = 1) -> None:
        counted = self._counted(amount)
        if counted:
            super().give_back(workspace, counted)

    def _counted(self, size: int) -> int:
        return min(size, self._per_workspace_limit, self._limit) if size >= SMALL else 0
