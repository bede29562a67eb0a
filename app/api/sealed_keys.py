"""Keys that were seen before, on disk, for while the database is away (MNEME_KEYS_AWAY_SECRET): a file each, which opens only
with the operator's secret and the key itself.

    KEY.USER     KEY: of the key's SHA-256; USER: of the one user that it was made for, to be found when that user is erased
    a file       NONCE (16 bytes) · the row, enciphered · MAC (32 bytes)

Names, pads and MACs are HMAC-SHA256 under the secret: whoever reads the folder learns no key, no tenant and no user, and what
others write into it is nothing. A revocation is not heard of while the database is away; so a file is good for a while only.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from msgspec import Struct

from app.store import ids
from app.store.tenancy import KeyRow

if TYPE_CHECKING:
    from app.settings import Settings

log = logging.getLogger(__name__)

MOST_FILES = 10_000
"""Keys that are kept, some 4 KB of disk each; of more, those seen longest ago go."""
AGAIN_SHARE = 20
"""A key that is in use is written again after so small a part of its time."""
FOLDER = "keys"
NONCE_BYTES, MAC_BYTES = 16, 32
NAME_CHARS = 32
"""Hexadecimal, of a MAC: 128 bits."""


class _SeenKey(Struct, frozen=True):
    seen_at: datetime
    row: KeyRow


class SealedKeys:
    """Their folder. No method raises for what the disk does: then there is nothing kept."""

    def __init__(self, folder: Path, secret: str, life: timedelta, *, most: int = MOST_FILES) -> None:
        """`life`: how long a key is good after the database was last asked for it."""
        self._folder = folder
        self._secret = secret.encode()
        self._life = life
        self._most = most
        self._kept: dict[bytes, _SeenKey] = {}

    def keep(self, row: KeyRow, now: datetime) -> None:
        """The database has just said that there is this key."""
        before = self._kept.get(row.key_hash)
        if before is not None and before.row == row and now - before.seen_at < self._life / AGAIN_SHARE:
            return
        kept = _SeenKey(now, row)
        path = self._path(row)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for other in self._files(row.key_hash):
                if other != path:
                    other.unlink(missing_ok=True)
            fresh = path.with_suffix(f".{secrets.token_hex(8)}~")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self._sealed(row.key_hash, msgspec.json.encode(kept)))
            fresh.replace(path)
            if before is None:
                self._bound()
        except OSError as error:
            log.warning("a key is not kept for while the database is away", extra={"error": str(error)})
            return
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[row.key_hash] = kept

    def find(self, digest: bytes, now: datetime) -> KeyRow | None:
        """The key with this SHA-256, as it was when the database last said so; None: unknown, or too long ago."""
        for path in self._files(digest):
            try:
                opened = self._opened(digest, path.read_bytes())
            except OSError:
                continue
            if opened is None:
                continue
            kept = msgspec.json.decode(opened, type=_SeenKey)
            if timedelta(0) <= now - kept.seen_at < self._life and kept.row.key_hash == digest:
                return kept.row
        return None

    def drop(self, digest: bytes) -> None:
        """The database has just said that there is no such key any more."""
        self._kept.pop(digest, None)
        self._unlink(self._files(digest))

    def erase(self, user: UUID) -> None:
        """Keys that were made for this user."""
        self._kept.clear()
        self._unlink(self._folder.glob(f"*.{self._name(b'user', user.bytes)}"))

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _path(self, row: KeyRow) -> Path:
        confined = row.user_external_id
        user = ids.user_id(row.tenant_id, confined).bytes if confined is not None else b""
        return self._folder / f"{self._name(b'key', row.key_hash)}.{self._name(b'user', user)}"

    def _files(self, digest: bytes) -> Iterator[Path]:
        return self._folder.glob(f"{self._name(b'key', digest)}.*[!~]")

    def _unlink(self, paths: Iterator[Path]) -> None:
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.error("a key cannot be taken away", extra={"error": str(error)})

    def _bound(self) -> None:
        paths = list(self._folder.iterdir())
        if len(paths) > self._most:
            for path in sorted(paths, key=lambda each: each.stat().st_mtime)[: len(paths) - self._most]:
                path.unlink(missing_ok=True)

    def _mac(self, purpose: bytes, *parts: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join((b"mneme.keys", purpose, *parts)), "sha256")

    def _name(self, purpose: bytes, subject: bytes) -> str:
        return self._mac(purpose, subject).hex()[:NAME_CHARS]

    def _pad(self, digest: bytes, nonce: bytes, size: int) -> bytes:
        blocks = range(size // MAC_BYTES + 1)
        return b"".join(self._mac(b"pad", digest, nonce, block.to_bytes(4)) for block in blocks)[:size]

    def _sealed(self, digest: bytes, plain: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        hidden = _xor(plain, self._pad(digest, nonce, len(plain)))
        return nonce + hidden + self._mac(b"mac", digest, nonce, hidden)

    def _opened(self, digest: bytes, data: bytes) -> bytes | None:
        """None: not sealed by us for this key."""
        nonce, hidden, mac = data[:NONCE_BYTES], data[NONCE_BYTES:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(b"mac", digest, nonce, hidden)):
            return None
        return _xor(hidden, self._pad(digest, nonce, len(hidden)))


def _xor(text: bytes, pad: bytes) -> bytes:
    return (int.from_bytes(text) ^ int.from_bytes(pad)).to_bytes(len(text))


def sealed_keys(settings: Settings) -> SealedKeys | None:
    """None where the operator has not said so."""
    secret = settings.keys_away_secret
    if secret is None:
        return None
    return SealedKeys(settings.data_dir / FOLDER, secret.get_secret_value(), timedelta(seconds=settings.keys_away_s))
