import pytest

from app.capture.masking import MASK, masked, masked_path

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


@pytest.mark.parametrize("name", SECRETS)
def test_a_header_that_carries_a_key_is_masked(name: bytes) -> None:
    assert masked([(name, b"hunter2")]) == [[name.decode(), MASK]]


@pytest.mark.parametrize("name", HARMLESS)
def test_any_other_header_is_kept(name: bytes) -> None:
    assert masked([(name, b"5")]) == [[name.decode(), "5"]]


@pytest.mark.parametrize(
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
