"""Keys against a database that can be counted, and taken away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from app.api import auth
from app.api.auth import KEY_CACHE_S, Authenticator, SealedKeys, presented_key
from app.errors import StoreUnavailable, Unauthenticated
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KeyLimits, KeyRow, Tenancy
from tests.support.clock import FakeClock
from tests.support.tables import each_of

KEY = "mneme_" + "k" * 43
OTHER = "mneme_" + "o" * 43


class Keys:
    """A table of keys."""

    def __init__(self) -> None:
        self.rows: dict[bytes, KeyRow] = {}
        self.looked = 0
        self.away = False

    def add(self, key: str, **fields: object) -> KeyRow:
        digest = sha256(key.encode()).digest()
        plain: dict[str, object] = {"user_external_id": None, "scopes": [], "expires_at": None, "revoked_at": None}
        row = KeyRow(key_hash=digest, key_id=uuid4(), tenant_id=uuid4(), **(plain | fields))  # type: ignore[arg-type]  # by name
        self.rows[digest] = row
        return row

    async def key(self, digest: bytes) -> KeyRow | None:
        self.looked += 1
        if self.away:
            raise StoreUnavailable
        return self.rows.get(digest)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 11, 20, tzinfo=UTC))


def authenticator(
    keys: Keys, clock: FakeClock, *, key_cache_s: float = KEY_CACHE_S, **settings: object
) -> Authenticator:
    given = Settings(**({"auth": "keys"} | settings))  # type: ignore[arg-type]  # by name
    return Authenticator(cast("Tenancy", keys), given, clock, key_cache_s=key_cache_s)


async def test_a_known_key_is_looked_up_once_in_its_time(keys: Keys, clock: FakeClock) -> None:
    row = keys.add(KEY, user_external_id="ana", scopes=["read"])
    gate = authenticator(keys, clock, key_cache_s=10)
    for _ in range(3):
        found = await gate.check({"authorization": f"Bearer {KEY}"})
    assert (found.tenant_id, found.key_id, found.user_external_id) == (row.tenant_id, row.key_id, "ana")
    assert found.allows("read")
    assert not found.allows("write")
    assert keys.looked == 1
    clock.move(timedelta(seconds=10))
    await gate.check({"x-mneme-key": KEY})
    assert keys.looked == 2
    gate.forget()
    await gate.check({"x-mneme-key": KEY})
    assert keys.looked == 3


@pytest.mark.parametrize(
    "change",
    [{"limits": KeyLimits(token_budget=1)}, {"revoked_at": datetime(2026, 11, 1, tzinfo=UTC)}, {"scopes": ["read"]},
     {"expires_at": datetime(2026, 11, 1, tzinfo=UTC)}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
async def test_a_changed_key_lives_no_longer_than_the_cache(
    keys: Keys, clock: FakeClock, change: dict[str, object]
) -> None:
    row = keys.add(KEY, limits=KeyLimits(requests_per_minute=5))
    gate = authenticator(keys, clock, key_cache_s=10)
    assert (await gate.check({"x-mneme-key": KEY})).limits == KeyLimits(requests_per_minute=5)
    keys.rows[row.key_hash] = replace(row, **change)
    for _ in range(9):
        clock.move(timedelta(seconds=1))
        await gate.check({"x-mneme-key": KEY})  # its use does not lengthen its life
    clock.move(timedelta(seconds=1))
    if "revoked_at" in change or "expires_at" in change:
        with pytest.raises(Unauthenticated):
            await gate.check({"x-mneme-key": KEY})
    else:
        found = await gate.check({"x-mneme-key": KEY})
        assert (found.limits, found.allows("write")) != (row.limits, True)


async def test_a_known_expiry_ends_a_key_at_once(keys: Keys, clock: FakeClock) -> None:
    keys.add(KEY, expires_at=clock.now() + timedelta(seconds=3))
    gate = authenticator(keys, clock, key_cache_s=10)
    await gate.check({"x-mneme-key": KEY})
    clock.move(timedelta(seconds=3))
    with pytest.raises(Unauthenticated):
        await gate.check({"x-mneme-key": KEY})
    assert keys.looked == 1


async def test_a_key_that_cannot_be_checked_is_not_let_in(keys: Keys, clock: FakeClock) -> None:
    keys.add(KEY)
    gate = authenticator(keys, clock, key_cache_s=10)
    await gate.check({"x-mneme-key": KEY})
    keys.away = True
    await gate.check({"x-mneme-key": KEY})
    with pytest.raises(StoreUnavailable):
        await gate.check({"x-mneme-key": OTHER})
    clock.move(timedelta(seconds=11))
    with pytest.raises(StoreUnavailable):
        await gate.check({"x-mneme-key": KEY})
    # A clock that goes back does not make an old answer young.
    clock.move(timedelta(seconds=-20))
    with pytest.raises(StoreUnavailable):
        await gate.check({"x-mneme-key": KEY})


async def test_unknown_keys_are_remembered_briefly_and_apart(
    keys: Keys, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CACHE_KEYS", 3)
    keys.add(KEY)
    gate = authenticator(keys, clock, key_cache_s=10)
    await gate.check({"x-mneme-key": KEY})
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await gate.check({"x-mneme-key": OTHER})
    assert keys.looked == 2
    for i in range(10):
        with pytest.raises(Unauthenticated):
            await gate.check({"x-mneme-key": f"mneme_{i:043d}"})
    looked = keys.looked
    await gate.check({"x-mneme-key": KEY})
    assert keys.looked == looked, "guesses do not push a real key out"
    with pytest.raises(Unauthenticated):
        await gate.check({"x-mneme-key": OTHER})
    assert keys.looked == looked + 1, "the memory is bounded"
    keys.add(OTHER)
    clock.move(timedelta(seconds=auth.NEGATIVE_CACHE_S))
    await gate.check({"x-mneme-key": OTHER})


async def test_without_a_cache_every_check_looks(keys: Keys, clock: FakeClock) -> None:
    keys.add(KEY)
    gate = authenticator(keys, clock, key_cache_s=0)
    for _ in range(2):
        await gate.check({"x-mneme-key": KEY})
        with pytest.raises(Unauthenticated):
            await gate.check({"x-mneme-key": OTHER})
    assert keys.looked == 4


@pytest.mark.parametrize("key", ["mneme_", KEY[:-1], KEY + "k", KEY[:-1] + "!", KEY[:-1] + "é", "sk-x", ""])
async def test_what_is_no_key_is_not_looked_up(keys: Keys, clock: FakeClock, key: str) -> None:
    with pytest.raises(Unauthenticated):
        await authenticator(keys, clock).check({"x-mneme-key": key})
    assert keys.looked == 0


async def test_open_mode_lets_everybody_in_but_wrong_keys(keys: Keys, clock: FakeClock) -> None:
    row = keys.add(KEY)
    gate = authenticator(keys, clock, auth="open")
    for headers in ({}, {"authorization": "Bearer sk-x"}, {"authorization": "Basic x"}, {"authorization": ""}):
        found = await gate.check(headers)
        assert (found.tenant_id, found.key_id, found.mode) == (LOCAL_TENANT, None, "open")
    assert (await gate.check({"authorization": f"Bearer {KEY}"})).tenant_id == row.tenant_id
    with pytest.raises(Unauthenticated):
        await gate.check({"authorization": f"Bearer {OTHER}"})
    with pytest.raises(Unauthenticated):
        await gate.check({"x-mneme-key": "sk-x"})


@each_of(
    ("headers", "key"),
    [
        ({}, None), ({"authorization": f"Bearer {KEY}"}, KEY), ({"authorization": f"bEaReR \t{KEY}  "}, KEY),
        ({"authorization": "Bearer sk-x"}, None), ({"authorization": KEY}, None), ({"x-mneme-key": f" {KEY} "}, KEY),
        ({"x-mneme-key": KEY, "authorization": f"Bearer {OTHER}"}, KEY), ({"authorization": "Bearer a b"}, None),
    ],
)  # fmt: skip
def test_which_key_a_request_brings(headers: dict[str, str], key: str | None) -> None:
    assert presented_key(headers) == key


async def test_a_key_seen_before_is_good_while_the_database_is_away_where_the_operator_says_so(
    keys: Keys, clock: FakeClock, tmp_path: Path
) -> None:
    def begun(sealed: SealedKeys | None) -> Authenticator:
        return Authenticator(cast("Tenancy", keys), Settings(auth="keys"), clock, sealed)

    sealed = SealedKeys(tmp_path, "s" * 40, timedelta(hours=1))
    row = keys.add(KEY, user_external_id="ana", scopes=["proxy"], expires_at=clock.now() + timedelta(minutes=30))
    await begun(sealed).check({"x-mneme-key": KEY})
    keys.away = True
    with pytest.raises(StoreUnavailable):
        await begun(None).check({"x-mneme-key": KEY})
    restarted = begun(sealed)
    found = await restarted.check({"x-mneme-key": KEY})
    assert (found.key_id, found.user_external_id, found.allows("read")) == (row.key_id, "ana", False)
    with pytest.raises(StoreUnavailable):
        await restarted.check({"x-mneme-key": OTHER})
    clock.move(timedelta(minutes=31))
    with pytest.raises(Unauthenticated, match="expired"):
        await begun(sealed).check({"x-mneme-key": KEY})


@pytest.mark.parametrize("how", ["revoked", "gone"])
async def test_a_key_that_the_database_knows_no_more_is_not_good_afterwards(
    keys: Keys, clock: FakeClock, tmp_path: Path, how: str
) -> None:
    sealed = SealedKeys(tmp_path, "s" * 40, timedelta(hours=1))
    row = keys.add(KEY)
    gate = Authenticator(cast("Tenancy", keys), Settings(auth="keys"), clock, sealed, key_cache_s=0)
    await gate.check({"x-mneme-key": KEY})
    if how == "revoked":
        keys.rows[row.key_hash] = replace(row, revoked_at=clock.now())
    else:
        keys.rows.clear()
    with pytest.raises(Unauthenticated):
        await gate.check({"x-mneme-key": KEY})
    keys.away = True
    with pytest.raises(StoreUnavailable):
        await Authenticator(cast("Tenancy", keys), Settings(auth="keys"), clock, sealed).check({"x-mneme-key": KEY})
