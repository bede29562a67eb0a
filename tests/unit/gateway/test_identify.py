from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest

from app.api.auth import Principal
from app.errors import BadHeader, Forbidden
from app.gateway.identify import (
    LOCAL_USER,
    NamelessUserLog,
    RejectedName,
    Switches,
    check_agreement,
    find_rejected_names,
    identify,
    index_headers,
    switches,
)
from app.gateway.naming import MAX_NAME, InvalidName, NameFault, parse_name
from app.store import ids
from tests.support.tables import each_of

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
        ({}, {"metadata": {"user_id": '{"x": 1}'}}, ""),
        ({}, {"metadata": {"user_id": "{broken"}}, "{broken"),
        ({}, {"user": "", "metadata": {"user_id": "d"}}, "d"),
        ({}, {"user": "   ", "metadata": {"user_id": "d"}}, "d"),
        ({}, {"user": 7, "safety_identifier": ["x"], "metadata": {"user_id": None}}, "7"),
        ({}, {"user": True, "safety_identifier": ["x"], "metadata": {"user_id": None}}, ""),
        ({}, {"user": "null", "safety_identifier": 8, "metadata": {"user_id": "d"}}, "8"),
        ({"x-mneme-user": "{{user}}"}, {"user": "x" * 513, "metadata": {"user_id": 9.0}}, "9"),
        ({"x-mneme-user": ""}, EVERYWHERE, "b"),
        ({}, {"metadata": {"user_id": '{"device_id":"","account_uuid":"","session_id":"s"}'}}, ""),
        ({}, {"metadata": {"user_id": '{"account_uuid":"","session_id":"s"}'}}, ""),
        ({}, {"user": {"user": "b"}, "metadata": [{"user_id": "d"}]}, ""),
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


MEANT = [
    ({"x-mneme-user": ""}, {}), ({"x-mneme-user": "undefined"}, {}), ({"x-mneme-user": "u" * 513}, {}),
    ({"x-mneme-user": "\u00a0"}, {"user": None}), ({}, {"user": ""}), ({}, {"user": True}), ({}, {"user": ["ana"]}),
    ({}, {"user": "\ud83d"}), ({}, {"safety_identifier": "${USER}"}), ({}, {"safety_identifier": {}}),
    ({}, {"metadata": {"user_id": "\u200b"}}), ({}, {"metadata": {"user_id": 10**30}}),
    ({}, {"metadata": {"user_id": '{"device_id":"","account_uuid":null,"session_id":"s"}'}}),
]  # fmt: skip


@each_of(("headers", "body"), MEANT)
def test_a_user_who_is_meant_and_not_named_is_nobody_in_open_mode_too(
    headers: dict[str, str], body: dict[str, Any]
) -> None:
    identity = identify(headers, body, OPEN)
    assert (identity.confined, identity.user_id) == (True, ids.nobody(TENANT))
    assert find_rejected_names(headers, body, OPEN)
    assert identify(headers, body, OF_ANA).user == "ana", "a key made for one user keeps that user"
    assert identify(headers, body | {"metadata": {"user_id": 7}}, OPEN).user == "7", "the next source counts"


@each_of("body", [{}, {"user": None}, {"metadata": "text"}, {"metadata": {"user_id": None}}])
def test_a_user_who_is_not_meant_is_the_local_one(body: dict[str, Any]) -> None:
    assert identify({}, body, OPEN).user == LOCAL_USER


@each_of("value", ["", "  ", "\u00a0", "null", "{{conversation_id}}", "x" * 513])
def test_a_session_header_that_names_nothing_is_an_absent_one(value: str) -> None:
    headers = {"x-mneme-session": value}
    assert identify(headers, {}, KEYED).session is None
    assert identify(headers, {"metadata": {"session_id": 7}}, KEYED).session == "7"
    assert identify(headers, {"metadata": {"session_id": value}}, KEYED, "c").session == "c"


NAMES: list[tuple[object, str]] = [
    ("ana", "ana"), (" ana ", " ana "), ("auth0|507f", "auth0|507f"), ("Ana <ana@example.com>", "Ana <ana@example.com>"),
    ("Jennifer Null", "Jennifer Null"), ("user", "user"), ("0", "0"), ("\U0001f984", "\U0001f984"), ("名前", "名前"),
    ("{3F2504E0-4F89-11D3-9A0C-0305E82C3301}", "{3F2504E0-4F89-11D3-9A0C-0305E82C3301}"), ("%d0%b0", "%d0%b0"),
    ("a%20b", "a%20b"), ("u" * 512, "u" * 512), (7, "7"), (-7, "-7"), (7.0, "7"), (1e3, "1000"),
    (7.5, "7.5"), (-0.0, "0"), (2**64 - 1, str(2**64 - 1)), ("my-session", "my-session"), ("[::1]", "[::1]"),
    *((name, name) for name in (
        "Nan", "Nil", "True", "Your", "Nan Goldin", "acme:Nan", "nan.smith@example.com", "anilkumar", "Jennifer Null-Smith",
        "$accountant", "$android", "$idris", "$Sid", "$userland", "<Ana>", "<Ana Müller>", "[ana]", "[bot]", "__ana__", "{ana}",
        "#ana#", "a%s", "smith{jr}", "f{1}", "chat id", "→", "ana_", "https://example.com/", "YW5h=", "req.ana", "AT&T",
        # People whose name is a missing value of some language, and ids behind words of fields.
        "wang.nan@example.com", "li-nan", "wang_nan", "chen.nan", "ayse-nil", "ayşe.nil@example.com", "Nil Yılmaz", "Dr. Null",
        "meta.user.8842", "data.customer.77", "state.user.ab12", "arn:aws:iam::123456789012:user/ana", "CN=Ana,OU=users",
        "acct:user7@host", "guest-7", "usuario_7", "benutzer-12", "用户123", "王楠", "+34 600 123 456", "@ana", "Su Kunde7",
        "Nuno None-Silva", "ana.true@example.com", "null0x", "1000000000000000", "undefinedly",
        # Visitors with an id of their own, people and accounts beside the words for an unknown person.
        "anonymous-8842", "anon_3f2", "visitor 3", "acme:guest:7", "Anna Guest", "guest house", "unknown_artist", "Gasthaus",
        "匿名用户7", "default", "admin", "default-user", "customer", "Todo Aoi", "[ana, ben]", "{ana: 7}",
    )),
]  # fmt: skip


@each_of(("value", "name"), NAMES)
def test_a_name_is_any_text_and_a_number_is_its_text(value: object, name: str) -> None:
    assert parse_name(value) == name


FAULTS: dict[NameFault, list[object]] = {
    "blank": ["", " ", "\t\n", "\u00a0", "\u200b\u2060", "\u3164", "\u2800", "--", "_", "%20"],
    "too-long": ["u" * 513],
    "wrong-type": [True, False, None, [], ["ana"], {"id": "ana"}, 2**64, -(2**63) - 1, 1e22, float("nan"), float("inf"),
        # Objects and lists written as text, like those that are none.
        '{"id": "7"}', '{"mail":"ana@example.com"}', "{'id': 7}", '["ana"]', ' [{"id": 7}] ', "%7B%22id%22%3A7%7D"],
    "placeholder": [
        "undefined", "Null", "None", "nil", "NaN", "N/A", "(null)", "<nil>", "[object Object]", "user-undefined",
        "undefined undefined", "acme:undefined", "undefined@example.com", "{{user}}", "user-{{ id }}", "${USER_ID}",
        "$USER", "#{user}", "<user_id>", "<%= user %>", "{user_id}", "user_{user.id}", "{0}", "{}", "%s", "user_%s",
        "%USERNAME%", "%(user)s", "%7B%7Buser%7D%7D", "__USER_ID__", "YOUR_USER_ID", "user_id",
        "00000000-0000-0000-0000-000000000000",
        # A missing value between signs, and as languages write it.
        "acme:null", "acme/None", "acme-null", "acme#null", "acme|null", "acme.null", "acme:nil", "u:null", "usr_null",
        "email:null", "user:null@acme", "null@example.com", "acme-NaN", "user_None@acme.com", "anna-null", "%!s(<nil>)",
        "Optional(nil)", "Some(null)", "NoneType", "<class 'NoneType'>", "undefined1", "user-[object Object]",
        "[object Object]1", "Promise { <pending> }", "<User object at 0x7f12>",
        # Slots with a filter or a format, closed or not, and encoded.
        "{user|upper}", "{user!r}", "{user:>10}", "{user ?? 'x'}", "{#user}", "{firstName}", "{getUser()}", "${user",
        "{{user", "user{0}", "user%s", "##user##", "@@user@@", "[name]", "<your-email>", ":user_id", "$userId",
        "$env:USERNAME", "$user->id", "$_SESSION['user']", "&lt;user&gt;", "&#123;&#123;user&#125;&#125;",
        "%257B%257Bu%257D%257D",
        # Expressions, and a prefix without what follows it.
        "process.env.USER", "req.user.id", "os.environ['USER']", "this.userId", "user_", "user:", "session-", "account/",
        "currentUser.id", "session.user.email", "user.name", "() => user.id", "async () => user",
        # A missing value behind a sign and a space, and other words for one.
        "acme / null", "acme: null", "acme - undefined", "acme undefined", "<unset>", "(empty)", "(not set)", "CHANGEME",
        "REPLACE_ME", "000000000000000000000000", "00000000000000000000000000",
        # Digests of nothing, of "undefined" and of "null".
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "D41D8CD98F00B204E9800998ECF8427E",
        "eb045d78d273107348b0300c01d29b7552d622abbc6faf81b3ec55359aa9950c", "37a6259cc0c1dae299a7866489dff0bd",
        # Marks set twice, and formats with a width, a position or a type.
        "[[user]]", "<<user>>", "%1$s", "%[1]s", "%i", "%lu", "{0:s}", "{:>10}",
        # What a developer is told to fill in, and other languages.
        "your_user_id_here", "insert-user-id-here", "REPLACE_WITH_USER_ID", "DEIN_BENUTZERNAME", "TU_ID_DE_USUARIO",
        "VOTRE_ID", "seu usuário", "{usuario}", "<usuario>", "$usuario", ":usuario_id", "%usuario%", "<Benutzername>",
        "{benutzer_id}", "{nom_utilisateur}", "[nombre_usuario]", "<identifiant>", "{nome_do_usuário}", "{用户}", "<用户名>",
        "usuario_undefined", "benutzer-null", "utilisateur:null",
        # Words for a person who is not known.
        "anonymous", "Anonymous", "ANON", "anonymous_user", "user:anonymous", "<anonymous>", "guest", "Guest User",
        "acme:guest", "acme/visitor", "guest@example.com", "unknown", "(unknown)", "unknown user", "nobody", "no-user",
        "Not logged in",
        "unauthenticated", "[REDACTED]", "TODO", "tbd", "Gast", "unbekannt", "invitado", "usuario_anónimo", "desconocida",
        "invité", "utilisateur inconnu", "convidado", "visitante", "匿名用户", "游客", "anonymous%40example.com",
    ],
    "damaged": ["Ana \ud83d", "Ana \ufffd", "a\0b"],
}  # fmt: skip


@each_of(("fault", "value"), [(fault, value) for fault, values in FAULTS.items() for value in values])
def test_a_value_that_many_people_may_share_is_no_name(fault: NameFault, value: object) -> None:
    with pytest.raises(InvalidName) as caught:
        parse_name(value)
    assert caught.value.fault == fault


def test_what_names_nobody_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    nameless = NamelessUserLog()
    for body in ({"user": "undefined"}, {"user": "null"}, {"user": ""}, {"user": "ana"}, {}):
        for _ in range(2):
            nameless.report(find_rejected_names({}, body, OPEN), TENANT, UUID(int=3))
    logged = [(record.field, record.fault) for record in caplog.records]  # type: ignore[attr-defined]
    assert logged == [("user", "placeholder"), ("user", "blank")]
    assert "undefined" not in caplog.text
    assert find_rejected_names({}, {"user": []}, OPEN) == [RejectedName("user", "wrong-type")]


def test_headers_are_utf8_and_else_latin1() -> None:
    assert who({"x-mneme-user": "José".encode().decode("latin-1")}) == "José"
    assert who({"x-mneme-user": "José"}) == "José"
    assert who({"x-mneme-user": "a%20b"}) == "a%20b", "as /api/v1 reads it"


@each_of("value", [b"\xed\xa0\xbd", b"ana \xed\xb8\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"ana \xef\xbf\xbd"])
def test_a_header_with_half_a_character_names_nobody(value: bytes) -> None:
    headers = {"x-mneme-user": value.decode("latin-1")}
    assert find_rejected_names(headers, {}, OPEN) == [RejectedName("X-Mneme-User", "damaged")]


@each_of(("headers", "body"), MEANT)
def test_a_space_does_not_apply_where_the_user_is_rejected(headers: dict[str, str], body: dict[str, Any]) -> None:
    spaced = headers | {"x-mneme-space": "team"}
    for principal in (OPEN, KEYED):
        identity = identify(spaced, body, principal)
        assert (identity.confined, identity.space) == (True, None)
    assert identify(spaced, body, OF_ANA).space == "team"
    with pytest.raises(BadHeader, match="say whose it is"):
        identify({"x-mneme-space": "team"}, {}, KEYED)


@each_of("value", [value for values in FAULTS.values() for value in values] + [value for value, _ in NAMES])
def test_a_name_is_read_as_it_was_made(value: object) -> None:
    with contextlib.suppress(InvalidName):
        assert parse_name(parse_name(value)) == parse_name(value)


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


SWITCHES = ("memory", "capture", "history", "paging", "profile", "price")


@each_of("value", ["", " ", "\t"])
def test_an_empty_header_is_an_absent_one(value: str) -> None:
    empty = {f"x-mneme-{name}": value for name in (*SWITCHES, "space", "session")}
    assert switches(empty) == switches({})
    assert identify(empty, {"user": "ana"}, OPEN) == identify({}, {"user": "ana"}, OPEN)


@each_of(("value", "on"), [("true", True), ("True", True), ("1", True), (" on ", True), ("false", False), ("0", False)])
def test_on_and_off_have_other_words(value: str, on: bool) -> None:
    asked = switches({f"x-mneme-{name}": value for name in ("memory", "capture", "paging")})
    assert (asked.memory == "on", asked.capture, asked.paging == "on") == (on, on, on)
    with pytest.raises(BadHeader, match="client or server"):
        switches({"x-mneme-history": value})


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


def test_an_empty_header_neither_disagrees_with_another_nor_hides_it() -> None:
    for values in ([b"", b"ana"], [b"ana", b" "], [b"ana", b"", b"ana"]):
        headers = [(b"X-Mneme-User", value) for value in values]
        check_agreement(headers)
        assert index_headers(headers) == {"x-mneme-user": "ana"}
    assert index_headers([(b"X-Mneme-User", b""), (b"Accept", b"a"), (b"accept", b"")]) == {
        "x-mneme-user": "",
        "accept": "",
    }
