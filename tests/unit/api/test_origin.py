"""Where a request may come from, and by which names a server in open mode may be asked."""

from __future__ import annotations

import pytest

from app.api.auth import check_origin, check_page, known_hosts
from app.errors import Forbidden
from tests.support.tables import each_of

ALLOWED = known_hosts(["Memory.Example"])
ORIGINS = frozenset({"https://app.example:8443"})


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:80", "[::1]", "Memory.Example:443"])
@pytest.mark.parametrize("origin", [None, "http://localhost:5173", "https://memory.example", "http://[::1]:1"])
def test_its_own_names_may_be_asked(host: str, origin: str | None) -> None:
    check_origin(host, origin, ALLOWED)


@each_of(
    "host",
    [None, "", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.0.0.1:x@evil.example", "[::1", "::1",
     "memory.example.", "a/memory.example", "memory.example\\@evil.example"],
)  # fmt: skip
def test_another_name_is_refused(host: str | None) -> None:
    with pytest.raises(Forbidden, match="MNEME_HOSTS"):
        check_origin(host, None, ALLOWED)


@each_of(
    "origin", ["null", "", "http://evil.example", "localhost", "http://localhost.evil.example", "http://localhost@evil.example",
               "http://[::1", "file://", "chrome-extension://abcdef"]
)  # fmt: skip
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    with pytest.raises(Forbidden, match="MNEME_HOSTS"):
        check_origin("localhost", origin, ALLOWED)


@each_of(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "[::1]:80",
        "192.168.1.7:8080",
        "[fe80::1]",
        "mneme",
        "mneme:8080",
        "memory.example",
        "host.docker.internal:8080",
        "mneme.localhost",
    ],
)
def test_names_that_no_page_elsewhere_can_have(host: str) -> None:
    check_page(host, None, ALLOWED, ORIGINS)


@each_of(
    "host",
    ["evil.example", "evil.example:8080", "mneme.evil.example", "127.0.0.1.nip.io", "localhost.", "localhost@evil.example", "",
     "[", "a b.c"],
)  # fmt: skip
def test_names_that_one_may_have(host: str) -> None:
    with pytest.raises(Forbidden, match="MNEME_HOSTS"):
        check_page(host, None, ALLOWED, ORIGINS)


@each_of(
    ("host", "origin"),
    [
        ("localhost:8080", "http://localhost:5173"),
        ("10.1.2.3:8080", "http://10.1.2.3:8080"),
        ("mneme", "http://mneme"),
        ("localhost", "https://memory.example"),
        ("localhost", "https://app.example:8443"),
        ("localhost", "vscode-webview://0abc"),
        ("localhost", "app://obsidian.md"),
        ("localhost", "chrome-extension://abcdef"),
    ],
)
def test_pages_that_may_ask(host: str, origin: str) -> None:
    check_page(host, origin, ALLOWED, ORIGINS)


@each_of(
    "origin",
    ["null", "http://evil.example", "https://evil.example:8080", "http://10.1.2.3", "http://localhost.evil.example",
     "http://localhost@evil.example", "http://[::1", "https://app.example", "https://host.docker.internal.evil.example"],
)  # fmt: skip
def test_pages_that_may_not(origin: str) -> None:
    with pytest.raises(Forbidden, match="MNEME_HOSTS"):
        check_page("localhost:8080", origin, ALLOWED, ORIGINS)
