"""HAR 1.2 of cassettes."""

from __future__ import annotations

from dataclasses import replace

from mneme_replay.har import har
from tests.support.cassettes import cassette, streamed


def test_an_archive_has_what_the_standard_asks_for() -> None:
    binary = cassette(3, body=b"\xff", answer=b"\xff\x00")
    failed = replace(cassette(4), response=None, outcome="failed", error="The upstream cannot be reached.")
    query = replace(cassette(5), request=replace(cassette().request, method="GET", path="/v1/models?a=b&c=", body=b""))
    archive = har([cassette(), streamed(2), binary, failed, query], "0.1.0")
    log = archive["log"]
    assert (log["version"], log["creator"]) == ("1.2", {"name": "Mneme", "version": "0.1.0"})
    for entry in log["entries"]:
        assert entry.keys() >= {"startedDateTime", "time", "request", "response", "cache", "timings"}
        assert entry["request"].keys() >= {
            "method", "url", "httpVersion", "cookies", "headers", "queryString", "headersSize", "bodySize",
        }  # fmt: skip
        assert entry["response"].keys() >= {
            "status", "statusText", "httpVersion", "cookies", "headers", "content", "redirectURL", "headersSize", "bodySize",
        }  # fmt: skip
        assert entry["time"] == sum(entry["timings"].values())
    whole, stream, bytes_, none, asked = log["entries"]
    assert whole["response"]["content"]["text"].startswith('{"id":"chatcmpl-1"')
    assert whole["response"]["statusText"] == "OK"
    assert stream["timings"] == {"send": 0, "wait": 10.0, "receive": 40.0}
    assert stream["_chunks"][0][0] == 10_000
    assert bytes_["response"]["content"] == {
        "size": 2, "mimeType": "application/json", "text": "/wA=", "encoding": "base64",
    }  # fmt: skip
    assert (none["response"]["status"], none["_error"]) == (0, "The upstream cannot be reached.")
    assert asked["request"]["queryString"] == [{"name": "a", "value": "b"}, {"name": "c", "value": ""}]
    assert "postData" not in asked["request"]
