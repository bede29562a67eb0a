import pytest

from app.capture.record import masked, parse_path, without
from app.errors import BadRequest
from mneme_replay.paths import MASK, redacted
from mneme_replay.secrets import masked_path
from tests.support.tables import each_of

SECRETS = [
    b"Authorization",
    b"proxy-authorization",
    b"Cookie",
    b"Set-Cookie",
    b"X-Api-Key",
    b"api-key",
    b"X-Mneme-Key",
    b"x-goog-api-key",
    b"Ocp-Apim-Subscription-Key",
    b"X-Amz-Security-Token",
    b"x-auth-token",
    b"Helicone-Auth",
    b"cf-aig-authorization",
    b"X-Client-Secret",
]
HARMLESS = [
    b"idempotency-key",
    b"x-ratelimit-remaining-tokens",
    b"x-ratelimit-limit-tokens",
    b"www-authenticate",
    b"x-request-id",
    b"content-type",
]


@each_of("name", SECRETS)
def test_a_header_that_carries_a_key_is_masked(name: bytes) -> None:
    assert masked([(name, b"hunter2")]) == [[name.decode(), MASK]]


@each_of("name", HARMLESS)
def test_any_other_header_is_kept(name: bytes) -> None:
    assert masked([(name, b"5")]) == [[name.decode(), "5"]]


@each_of(
    ("path", "kept"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models?limit=3", "/v1/models?limit=3"),
        ("/v1/models?api_key=sk-1&limit=3&key=AIza", "/v1/models?api_key=***&limit=3&key=***"),
        ("/v1/x?", "/v1/x?"),
    ],
)
def test_a_key_in_the_query_is_taken_out(path: str, kept: str) -> None:
    assert masked_path(path) == kept


def test_headers_that_the_settings_name_are_emptied() -> None:
    headers = [(b"X-User-Email", b"ana@example.com"), (b"accept", b"*/*")]
    assert without(headers, {b"x-user-email"}) == [(b"X-User-Email", b"***"), (b"accept", b"*/*")]
    assert without(headers, ()) is headers


@each_of(
    ("path", "steps"),
    [
        ("$.metadata.ssn", ("metadata", "ssn")),
        ("$.messages[*].content[*].image_url.url", ("messages", None, "content", None, "image_url", "url")),
        ("$['a b'][0].*", ("a b", 0, None)),
        ('$["x.y"]', ("x.y",)),
        ("$[*]", (None,)),
    ],
)
def test_a_path_is_read(path: str, steps: tuple[object, ...]) -> None:
    assert parse_path(path) == steps


@each_of("path", ["", "$", "metadata.ssn", "$metadata", "$.a[", "$.a[b]", "$..a", "$.a[?@.b]", "$.", "$.a b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(BadRequest, match="JSON path"):
        parse_path(path)


def test_a_value_loses_what_the_paths_name_and_nothing_else() -> None:
    value = {"a": [{"b": 1, "c": 2}, 3, {"b": {"d": 4}}], "0": "zero"}
    assert redacted(value, [parse_path("$.a[*].b")]) == {"a": [{"b": MASK, "c": 2}, 3, {"b": MASK}], "0": "zero"}
    assert redacted(value, [parse_path("$.a[2].b.d")])["a"][2] == {"b": {"d": MASK}}
    assert value["a"][0] == {"b": 1, "c": 2}, "the value itself stays"
    for elsewhere in ("$.x", "$.a.b", "$[0]", "$.a[9]"):
        assert redacted(value, [parse_path(elsewhere)]) is value
