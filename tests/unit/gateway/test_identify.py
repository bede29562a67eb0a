from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.api.auth import Principal
from app.errors import BadHeader, Forbidden
from app.gateway.identify import (
    LOCAL_USER,
    MAX_NAME,
    Switches,
    check_agreement,
    identify,
    switches,
)
from app.store import ids

TENANT = UUID(int=7)
OPEN = Principal(TENANT, None, None, frozenset(), "open")
KEYED = Principal(TENANT, UUID(int=1), None, frozenset(), "keys")
OF_ANA = Principal(TENANT, UUID(int=2), "ana", frozenset(), "keys")


def who(headers: dict[str, str] | None = None, body: dict[str, Any] | None = None, principal: Principal = KEYED) -> str:
    return identify(headers or {}, body, principal).user


EVERYWHERE = {"user": "b", "safety_identifier": "c", "metadata": {"user_id": "d"}}


@pytest.mark.parametrize(
    ("headers", "body", "user"),
    [
        ({"x-mneme-user": "a"}, EVERYWHERE, "a"),
        ({}, EVERYWHERE, "b"),
        ({}, {"safety_identifier": "c", "metadata": {"user_id": "d"}}, "c"),
        ({}, {"metadata": {"user_id": "d"}}, "d"),
        (
            {},
            {"metadata": {"user_id": "user_1_account_2_session_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"}},
            "user_1_account_2",
        ),
        ({}, {"metadata": {"user_id": '{"device_id":"d1","account_uuid":"","session_id":"s"}'}}, "d1"),
        ({}, {"metadata": {"user_id": '{"device_id":"d1","account_uuid":"a1","session_id":"s"}'}}, "a1"),
        ({}, {"metadata": {"user_id": '{"x": 1}'}}, '{"x": 1}'),
        ({}, {"metadata": {"user_id": "{broken"}}, "{broken"),
        ({}, {"user": "", "metadata": {"user_id": "d"}}, "d"),
        ({}, {"user": "   ", "metadata": {"user_id": "d"}}, "d"),
        ({}, {"user": 7, "safety_identifier": ["x"], "metadata": {"user_id": None}}, ""),
        ({}, {"user": "x" * (MAX_NAME + 1)}, ""),
        ({}, {"metadata": "no object"}, ""),
        ({}, None, ""),
    ],
)
def test_the_first_place_that_names_a_user_counts(headers: dict[str, str], body: dict[str, Any], user: str) -> None:
    assert who(headers, body) == user


def test_ids_come_from_tenant_and_name() -> None:
    identity = identify({"x-mneme-user": "ana", "x-mneme-session": "s"}, None, KEYED)
    assert identity.user_id == ids.user_id(TENANT, "ana")
    assert identity.named == ids.session_id(TENANT, identity.user_id, "s")
    assert identity.issued is None
    assert not identity.confined
    other = identify({"x-mneme-user": "ana"}, None, Principal(UUID(int=8), None, None, frozenset(), "keys"))
    assert other.user_id != identity.user_id


def test_nobody_is_confined_to_the_session() -> None:
    identity = identify({}, {}, KEYED)
    assert identity.confined
    assert identity.user_id == ids.nobody(TENANT)


def test_in_open_mode_it_is_the_one_person_at_this_machine() -> None:
    assert who({}, {}, OPEN) == LOCAL_USER
    assert who({}, {"user": "bob"}, OPEN) == "bob"
    # A key makes it an application, whose end users must not be pooled.
    assert identify({}, {}, Principal(TENANT, UUID(int=1), None, frozenset(), "open")).confined


def test_a_key_made_for_one_user_is_that_users() -> None:
    assert who({}, {"user": "bob"}, OF_ANA) == "ana"
    assert who({"x-mneme-user": "ana"}, {}, OF_ANA) == "ana"
    with pytest.raises(Forbidden, match="another"):
        who({"x-mneme-user": "bob"}, {}, OF_ANA)


@pytest.mark.parametrize("value", ["", "  ", "x" * (MAX_NAME + 1)])
@pytest.mark.parametrize("name", ["x-mneme-user", "x-mneme-session"])
def test_a_header_that_names_nobody_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadHeader) as caught:
        identify({name: value}, None, KEYED)
    assert caught.value.param == name


def test_headers_are_utf8_and_else_latin1() -> None:
    assert who({"x-mneme-user": "José".encode().decode("latin-1")}) == "José"
    assert who({"x-mneme-user": "José"}) == "José"
    assert who({"x-mneme-user": "a%20b"}) == "a%20b", "as /api/v1 reads it"


def test_what_postgres_cannot_keep_is_replaced() -> None:
    assert who({}, {"user": "a\0b"}) == "a\ufffdb"


def test_the_session_comes_from_the_header_or_the_metadata() -> None:
    body = {"metadata": {"session_id": "m"}}
    assert identify({"x-mneme-session": "h"}, body, KEYED).session == "h"
    assert identify({}, body, KEYED).session == "m"
    assert identify({}, {}, KEYED).session is None
    issued = identify({"x-mneme-session": str(UUID(int=5))}, {}, KEYED)
    assert issued.issued == UUID(int=5)
    assert issued.named is not None


@pytest.mark.parametrize(
    ("value", "retry"), [(None, 0), ("0", 0), ("2", 2), ("-1", 0), ("two", 0), ("²", 0), ("9" * 9, 32767)]
)
def test_retries_are_counted_by_the_sdk(value: str | None, retry: int) -> None:
    identity = identify({} if value is None else {"x-stainless-retry-count": value}, None, KEYED)
    assert identity.retry == retry
    assert identity.retried == (retry > 0)


def test_switches_have_their_defaults_and_are_read_whatever_their_case() -> None:
    assert switches({}) == Switches("on", True, None, None)
    given = {
        "x-mneme-memory": "Read-Only",
        "x-mneme-capture": "OFF",
        "x-mneme-history": " server ",
        "x-mneme-paging": "on",
        "x-mneme-profile": "Temporal_Focused",
    }
    assert switches(given) == Switches("read-only", False, "server", "on", "temporal_focused")


def test_a_profile_that_is_none_is_refused() -> None:
    with pytest.raises(BadHeader, match=r"auto or prefill or .* or strategy, not 'best'"):
        switches({"x-mneme-profile": "best"})


@pytest.mark.parametrize("name", ["memory", "capture", "history", "paging"])
def test_a_switch_that_is_none_is_refused_and_says_what_it_takes(name: str) -> None:
    with pytest.raises(BadHeader, match=r"on or off|client or server") as caught:
        switches({f"x-mneme-{name}": "maybe"})
    assert caught.value.param == f"x-mneme-{name}"


def test_a_header_of_ours_says_one_thing_but_labels_are_many() -> None:
    check_agreement([(b"x-mneme-user", b"ana"), (b"X-Mneme-User", b"ana"), (b"accept", b"a"), (b"accept", b"b")])
    check_agreement([(b"x-mneme-label", b"golden"), (b"X-Mneme-Label", b"checkout")])
    with pytest.raises(BadHeader, match="comes twice"):
        check_agreement([(b"x-mneme-user", b"ana"), (b"X-Mneme-User", b"ben")])
