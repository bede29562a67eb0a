from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from app.store import ids
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, 0, 123000, tzinfo=UTC)
ONE, TWO = UUID(int=1), UUID(int=2)


def time_of(made: UUID) -> datetime:
    return datetime.fromtimestamp((made.int >> 80) / 1000, UTC)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)))
def test_an_id_holds_its_time(at: datetime) -> None:
    made = ids.uuid7(at)
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert timedelta(microseconds=-1) <= at - time_of(made) < timedelta(milliseconds=2), (
        "to the millisecond, as floats have it"
    )


def test_ids_sort_by_time_and_never_meet() -> None:
    made = [ids.uuid7(NOW + timedelta(milliseconds=n)) for n in range(100)]
    assert all(earlier < later for earlier, later in pairwise(made))
    assert len({ids.uuid7(NOW) for _ in range(10_000)}) == 10_000


def test_before_the_epoch_is_the_epoch() -> None:
    assert time_of(ids.uuid7(datetime(1950, 1, 1, tzinfo=UTC))) == datetime(1970, 1, 1, tzinfo=UTC)


def test_names_lead_to_the_same_id_and_other_names_to_others() -> None:
    ana = ids.user_id(ONE, "ana")
    assert ana == ids.user_id(ONE, "ana")
    assert ana.version == 5
    others = {
        ids.user_id(ONE, "bob"),
        ids.user_id(TWO, "ana"),
        ids.nobody(ONE),
        ids.nobody(TWO),
        ids.session_id(ONE, ana, "ana"),
        ids.session_id(ONE, ids.user_id(ONE, "bob"), "ana"),
        ids.route_id(ONE, "ana"),
        ids.route_id(TWO, "ana"),
        uuid5(ONE, "ana"),
    }
    assert len(others) == 9
    assert ana not in others


def test_no_name_of_a_user_is_nobody() -> None:
    assert ids.nobody(ONE) not in {ids.user_id(ONE, name) for name in ("", "nobody", "user\0nobody")}


@given(st.text(), st.text())
def test_a_user_and_a_session_cannot_be_put_together_in_two_ways(user: str, name: str) -> None:
    # The user's part has one length: whatever the name, it cannot reach into it.
    one = ids.session_id(ONE, ids.user_id(ONE, user), name)
    assert one != ids.session_id(ONE, ids.user_id(ONE, user + "\0" + name), "")


def test_an_imported_line_has_one_id_whose_time_is_its_own() -> None:
    made = ids.message_id(ONE, 3, "user", "hi", NOW)
    assert made == ids.message_id(ONE, 3, "user", "hi", NOW)
    assert made.version == 7
    assert time_of(made) == NOW
    others = {
        ids.message_id(TWO, 3, "user", "hi", NOW),
        ids.message_id(ONE, 4, "user", "hi", NOW),
        ids.message_id(ONE, 3, "assistant", "hi", NOW),
        ids.message_id(ONE, 3, "user", "ho", NOW),
        ids.message_id(ONE, 3, "user", "hi", NOW + timedelta(microseconds=1)),
    }
    assert len(others | {made}) == 6
    assert ids.message_id(ONE, 3, "user", "\ud800", NOW).version == 7


@each_of(
    ("text", "found"),
    [
        (str(ONE), ONE),
        (ONE.hex, ONE),
        (str(ONE).upper(), ONE),
        (f"{{{ONE}}}", None),
        (f"urn:uuid:{ONE}", None),
        ("my session", None),
        ("x" * 36, None),
        ("", None),
    ],
)
def test_what_is_written_as_an_id(text: str, found: UUID | None) -> None:
    assert ids.issued(text) == found


def test_the_fixed_ids() -> None:
    assert str(ids.LOCAL_TENANT) == "00000000-0000-0000-0000-000000000001", "as the schema has it"
    assert ids.NIL.int == 0
