"""Tokens: a file that lists what each token permits. It holds only the hashes of the tokens.

A token is 256 random bits, so one SHA-256 is enough: it cannot be guessed, so the hash need not be slow. The file may change
while the hub runs; the hub checks it at most once a second. A file that cannot be used any more may hold a revocation, so its
tokens are refused; not at once, because it may be one that is being replaced.

Once there has been a token, callers need one, also when the last is revoked or the file is lost: a mark beside the data says
so.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from hub.ports.identity import TokenEnd
from rolecall.errors import StoreError
from rolecall.model.ids import Caller
from rolecall.model.principal import Kind, Principal, Right
from rolecall.system import owners
from rolecall.system.files import delete, private, replace, sync
from rolecall.system.locks import lock_file, unlock
from rolecall.system.owners import Owner, give, give_lock, name_of, owner_of

log = logging.getLogger(__name__)

PREFIX = "rc_"
FILE_NAME = "tokens.json"
MARK_NAME = "tokens.required"
_MARK = "This hub has had tokens, so every caller needs one. Make one: rolecall tokens new --kind admin --name me\n"
_RELOAD_SECONDS = 0.5
_LOCK_PATIENCE = 10.0
_REPLACED_WITHIN = 2.0
"""Seconds for a file to be replaced by other means than a rename. So long what was read before holds."""
_MOST_REVOKED = 1000
_UNREAD = (0, 0, 0, 0)
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token. `id` is its public name. Times are wall clock; `expires` None: never."""

    id: str
    digest: str
    principal: Principal
    created: float
    expires: float | None

    def alive(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class TokenChange(StrEnum):
    CREATED = "token created"
    CHANGED = "token changed"
    REVOKED = "token revoked"


OnChange = Callable[[TokenChange, TokenEntry], None]


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenBook:
    """Finds the principal of a token. `mark`: the file that keeps tokens required. `shared`: one token that is not in the file
    and has every right. `on_change`: hears how the file differs from what was read before.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        mark: Path | None = None,
        shared: str | None = None,
        on_change: OnChange | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._mark = _Mark(mark) if mark is not None else None
        admin = Principal("admin", Kind.ADMIN)
        self._shared = TokenEntry("", digest_of(shared), admin, 0.0, None) if shared is not None else None
        self._on_change = on_change
        self._wall = wall
        self._monotonic = monotonic
        self._entries: dict[str, TokenEntry] = {}
        """Those that are accepted."""
        self._by_id: dict[str, TokenEntry] | None = None
        """Those of the file when it was last read; None: it never was."""
        self._revoked: dict[str, TokenEntry] = {}
        self._problem = ""
        self._unread_since: float | None = None
        """The file cannot be read since then: a token that is not known may be in it."""
        self._recent: dict[str, TokenEntry] = {}
        """Valid tokens since the last check of the file, so that a busy caller is hashed once."""
        self._stamp: _Stamp | None = _UNREAD
        self._read_at = float("-inf")
        self._required = shared is not None

    @property
    def empty(self) -> bool:
        self._reload()
        return self._shared is None and not self._entries

    @property
    def required(self) -> bool:
        self._reload()
        return self._required

    @property
    def problem(self) -> str:
        self._reload()
        return self._problem

    def find(self, token: str) -> Principal | None:
        self._reload()
        entry = self._recent.get(token) or self._entry_of(token)
        if entry is None or not entry.alive(self._wall()):
            return None
        self._recent[token] = entry
        return entry.principal

    def ended(self, token: str) -> Principal | None:
        digest = digest_of(token)
        entry = self._entries.get(digest) or self._revoked.get(digest)
        return entry.principal if entry is not None else None

    def is_valid(self, token_id: str) -> bool:
        self._reload()
        entry = (self._by_id or {}).get(token_id)
        return entry.alive(self._wall()) if entry is not None else not token_id or self._unread_since is not None

    def may_call(self, caller: Caller) -> bool:
        """Whether one of the caller's tokens is valid and has that right; on a hub without tokens everybody has it."""
        self._reload()
        if not self._required or self._unread_since is not None:
            return True
        now, entries = self._wall(), [*self._entries.values(), *([self._shared] if self._shared is not None else [])]
        return any(one.principal.caller == caller and one.principal.may(Right.CALL) and one.alive(now) for one in entries)

    def end_times(self) -> Sequence[TokenEnd]:
        self._reload()
        now = self._wall()
        found = [
            TokenEnd(entry.id, entry.principal.name, entry.principal.workspace, entry.expires)
            for entry in self._entries.values()
            if entry.expires is not None and entry.alive(now)
        ]
        return sorted(found, key=lambda end: end.at)

    def _entry_of(self, token: str) -> TokenEntry | None:
        digest = digest_of(token)
        if self._shared is not None and hmac.compare_digest(digest, self._shared.digest):
            return self._shared
        entry = self._entries.get(digest)
        return entry if entry is not None and hmac.compare_digest(entry.digest, digest) else None

    def _reload(self) -> None:
        now = self._monotonic()
        if now - self._read_at < _RELOAD_SECONDS:
            return
        self._read_at = now
        self._recent.clear()
        if self._path is not None:
            self._read_file(self._path, now)
        if self._mark is not None:
            self._required = self._mark.keep(self._required)

    def _read_file(self, path: Path, now: float) -> None:
        """Any file shows that there has been a token."""
        stamp = _stamp(path)
        if stamp is not None:
            self._required = True
        if stamp == self._stamp:
            self._unread_since = None
            return
        try:
            entries = read(path)
            if stamp is None and self._by_id:
                raise StoreError(f"{path} is gone. Restore it from a backup, or make new tokens.")
        except StoreError as error:
            self._refuse_all(error.message, now)
            return
        self._problem, self._unread_since, self._stamp = "", None, stamp
        self._take(entries)

    def _refuse_all(self, why: str, now: float) -> None:
        """The file cannot be used. What was read before it holds for a moment."""
        self._required = True
        if self._unread_since is None:
            self._unread_since = now
        if not self._by_id or now - self._unread_since >= _REPLACED_WITHIN:
            self._problem, self._entries, self._stamp = why, {}, _UNREAD

    def _take(self, entries: Sequence[TokenEntry]) -> None:
        before, self._by_id = self._by_id, {entry.id: entry for entry in entries}
        self._entries = {entry.digest: entry for entry in entries}
        if before is None:
            return
        for entry in before.values():
            if entry.id not in self._by_id:
                self._revoked[entry.digest] = entry
                self._report(TokenChange.REVOKED, entry)
        while len(self._revoked) > _MOST_REVOKED:
            del self._revoked[next(iter(self._revoked))]
        for entry in entries:
            if before.get(entry.id) != entry:
                self._report(TokenChange.CHANGED if entry.id in before else TokenChange.CREATED, entry)

    def _report(self, change: TokenChange, entry: TokenEntry) -> None:
        if self._on_change is not None:
            self._on_change(change, entry)


class _Mark:
    """A file that keeps tokens required, whatever happens to them. It is written once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = self._failed = False

    def keep(self, required: bool) -> bool:
        """Whether tokens are required: because of what was found, or because they were before."""
        if self._written:
            return True
        try:
            self._written = self._exists()
            if required and not self._written:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(self._path, "w", encoding="utf-8", opener=private) as file:
                    file.write(_MARK)
                self._written = True
        except OSError as error:
            if not self._failed:
                self._failed = True
                facts = {"event": "tokens_mark", "path": str(self._path), "why": error.strerror}
                log.warning("the mark that tokens are required cannot be read or written", extra=facts)
            return True
        return self._written

    def _exists(self) -> bool:
        try:
            self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def read(path: Path) -> Sequence[TokenEntry]:
    """StoreError: the file cannot be read, or is not a token file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.{owners.in_words(path)}") from error
    try:
        return [_entry(item) for item in json.loads(text)["tokens"]]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{path} is not a token file. Restore it from a backup, or delete it and make new tokens.") from error


def new(path: Path, principal: Principal, *, lasts: float | None, now: float) -> tuple[str, TokenEntry]:
    """The token, which is not stored, and its entry."""
    token = PREFIX + secrets.token_urlsafe(32)
    entry = TokenEntry(secrets.token_hex(4), digest_of(token), principal, now, now + lasts if lasts is not None else None)
    with _changing(path) as entries:
        entries.append(entry)
    return token, entry


def revoke(
    path: Path, name: str, *, workspace: str | None = None, kind: Kind | None = None, several: bool = True
) -> Sequence[TokenEntry]:
    """Remove one token by its id, or all of a principal by its name. Returns the removed entries. `several`: also where
    principals of that name are in several workspaces, or of several kinds; otherwise SeveralHolders, and nothing is removed.
    """
    with _changing(path) as entries:
        gone = [entry for entry in entries if name in (entry.id, entry.principal.name)]
        gone = [one for one in gone if workspace in (None, one.principal.workspace) and kind in (None, one.principal.kind)]
        if not several and len({(one.principal.workspace, one.principal.kind) for one in gone}) > 1:
            raise SeveralHolders(gone)
        entries[:] = [entry for entry in entries if entry not in gone]
    return gone


def kept_from(path: Path, data_dir: Path) -> str | None:
    """The login name of the hub's user, if that one cannot read the file; None: it can. The hub runs as whoever wrote the mark,
    or, if it has seen no token yet, as the owner of its data folder.
    """
    return owners.kept_from(path, (data_dir / MARK_NAME, data_dir))


class SeveralHolders(Exception):
    """A name is of more than one holder. `entries`: their tokens."""

    def __init__(self, entries: Sequence[TokenEntry]) -> None:
        super().__init__("several holders")
        self.entries = entries


# --- writing


@contextmanager
def _changing(path: Path) -> Iterator[list[TokenEntry]]:
    """Change the entries under a lock. The new file replaces the old one atomically, or is written over it. It belongs to whom
    the old one belonged; a first one, made by root, to the owner of its folder. StoreError.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_file(path.with_name(path.name + ".lock"), within=_LOCK_PATIENCE)
    except BlockingIOError as error:
        raise StoreError(f"{path} is being changed by another process. Try again.") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be changed: {error.filename}: {error.strerror}.") from error
    try:
        owner = owner_of(path)
        give_lock(lock, owner)
        entries = list(read(path))
        yield entries
        _replace(path, json.dumps({"tokens": [_document(entry) for entry in entries]}, indent=1).encode(), owner)
    finally:
        unlock(lock)


def _replace(path: Path, text: bytes, owner: Owner | None) -> None:
    temporary = path.with_name(path.name + ".new")
    try:
        delete(temporary)
        with open(temporary, "xb", opener=private) as file:
            _give(file.fileno(), owner, path)
            file.write(text)
            file.flush()
            sync(file.fileno())
        replace(temporary, path)
    except StoreError:
        delete(temporary)
        raise
    except OSError as error:
        delete(temporary)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _overwrite(path, text):
            raise StoreError(f"{path} cannot be written: {error.strerror}.") from error


def _give(number: int, owner: Owner | None, path: Path) -> None:
    try:
        give(number, owner)
    except PermissionError as error:
        name = name_of(owner.user) if owner is not None else "another user"
        raise StoreError(f"{path} belongs to {name}, and would not after this. Run it as {name}, or as root.") from error


def _overwrite(path: Path, text: bytes) -> bool:
    """On a full disk a revocation needs no new room: its text is not longer than the old one. False: it is longer, or there is
    no old one. A reader that sees half of it keeps what it has read before, and reads it again.
    """
    try:
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if len(text) > size:
                return False
            file.write(text.ljust(size))
            file.flush()
            sync(file.fileno())
    except FileNotFoundError:
        return False
    return True


def _document(entry: TokenEntry) -> dict[str, Any]:
    holder = entry.principal
    return {
        "id": entry.id,
        "sha256": entry.digest,
        "name": holder.name,
        "kind": holder.kind.value,
        "workspace": holder.workspace,
        "roles": list(holder.roles),
        "networks": [str(network) for network in holder.networks],
        "created": entry.created,
        "expires": entry.expires,
    }


def _entry(item: dict[str, Any]) -> TokenEntry:
    holder = Principal(
        name=str(item["name"]),
        kind=Kind(item["kind"]),
        workspace=str(item["workspace"]),
        roles=tuple(str(role) for role in item["roles"]),
        networks=tuple(ip_network(network) for network in item["networks"]),
        token=str(item["id"]),
    )
    expires = item["expires"]
    return TokenEntry(
        str(item["id"]), str(item["sha256"]), holder, float(item["created"]), None if expires is None else float(expires)
    )


def _stamp(path: Path) -> _Stamp | None:
    """The last number also changes with the owner and the permissions."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_ctime_ns
