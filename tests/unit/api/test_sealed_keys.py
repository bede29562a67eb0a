"""Keys seen before, for while the database is away: what is kept of them, for how long, and from whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from app.api.auth import MAC_BYTES, SealedKeys
from app.store import ids
from app.store.tenancy import KeyLimits, KeyRow

NOW = datetime(2026, 11, 20, tzinfo=UTC)
LIFE = timedelta(hours=24)
SECRET = "s" * 40
TENANT = UUID(int=5)


def row(name: str, **fields: object) -> KeyRow:
    plain: dict[str, object] = {"user_external_id": None, "scopes": ["proxy"], "expires_at": None, "revoked_at": None}
    digest = sha256(name.encode()).digest()
    return KeyRow(key_hash=digest, key_id=uuid4(), tenant_id=TENANT, **(plain | fields))  # type: ignore[arg-type]  # by name


@pytest.fixture
def sealed(tmp_path: Path) -> SealedKeys:
    return SealedKeys(tmp_path / "keys", SECRET, LIFE)


def another(tmp_path: Path, secret: str = SECRET) -> SealedKeys:
    """As after a restart."""
    return SealedKeys(tmp_path / "keys", secret, LIFE)


def test_a_key_is_found_again_as_it_was_and_no_longer_than_its_time(sealed: SealedKeys, tmp_path: Path) -> None:
    limits = KeyLimits(requests_per_minute=3, models=("gpt-*",))
    kept = row("one", user_external_id="ana", limits=limits, expires_at=NOW + timedelta(days=9))
    sealed.keep(kept, NOW)
    assert another(tmp_path).find(kept.key_hash, NOW) == kept
    assert another(tmp_path).find(kept.key_hash, NOW + LIFE - timedelta(seconds=1)) == kept
    assert another(tmp_path).find(kept.key_hash, NOW + LIFE) is None
    assert another(tmp_path).find(kept.key_hash, NOW - timedelta(seconds=1)) is None, "the clock went back"
    assert another(tmp_path).find(row("two").key_hash, NOW) is None


def test_a_key_in_use_stays_good(sealed: SealedKeys) -> None:
    kept = row("one")
    for hour in range(0, 40, 2):
        sealed.keep(kept, NOW + timedelta(hours=hour))
    assert sealed.find(kept.key_hash, NOW + timedelta(hours=50)) == kept
    changed = row("one", scopes=["read"])
    sealed.keep(changed, NOW + timedelta(hours=38))
    assert sealed.find(kept.key_hash, NOW + timedelta(hours=50)) == changed, "a change is kept at once"


def test_nobody_else_reads_it_or_writes_one(sealed: SealedKeys, tmp_path: Path) -> None:
    kept = row("one", user_external_id="ana@example.com")
    sealed.keep(kept, NOW)
    (path,) = (tmp_path / "keys").iterdir()
    data = path.read_bytes()
    for told in (b"ana", b"proxy", str(TENANT).encode(), kept.key_hash, kept.key_hash.hex().encode()):
        assert told not in data + path.name.encode()
    assert path.stat().st_mode & 0o077 == 0
    assert another(tmp_path, "t" * 40).find(kept.key_hash, NOW) is None
    other = row("two")
    path.with_name(path.name.replace(path.stem, sealed._name(b"key", other.key_hash))).write_bytes(data)
    assert sealed.find(other.key_hash, NOW) is None, "it is of another key"
    for n in (0, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :])
        assert sealed.find(kept.key_hash, NOW) is None
    for short in (b"", b"x" * 7, data[: MAC_BYTES + 3]):
        path.write_bytes(short)
        assert sealed.find(kept.key_hash, NOW) is None


def test_what_ended_goes(sealed: SealedKeys, tmp_path: Path) -> None:
    ana, ben, anybody = (row(name, user_external_id=user) for name, user in (("a", "ana"), ("b", "ben"), ("c", None)))
    for each in (ana, ben, anybody):
        sealed.keep(each, NOW)
    sealed.drop(anybody.key_hash)
    sealed.erase(ids.user_id(TENANT, "ana"))
    found = [another(tmp_path).find(each.key_hash, NOW) is not None for each in (ana, ben, anybody)]
    assert found == [False, True, False]
    assert len(list((tmp_path / "keys").iterdir())) == 1


def test_there_is_a_bound(tmp_path: Path) -> None:
    sealed = SealedKeys(tmp_path / "keys", SECRET, LIFE, most=3)
    for n in range(7):
        sealed.keep(row(str(n)), NOW)
    assert len(list((tmp_path / "keys").iterdir())) == 3


def test_a_disk_that_takes_nothing_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("no folder")
    sealed = SealedKeys(tmp_path / "keys", SECRET, LIFE)
    kept = row("one")
    sealed.keep(kept, NOW)
    assert sealed.find(kept.key_hash, NOW) is None
    sealed.drop(kept.key_hash)
    sealed.erase(ids.user_id(TENANT, "ana"))
