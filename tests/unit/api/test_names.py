"""Names by which a server in open mode may be asked."""

from __future__ import annotations

import pytest

from app.api.origin import check_name, known_hosts
from app.errors import BadHeader

ALLOWED = known_hosts(["Memory.Example"])


@pytest.mark.parametrize(
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
    ],
)
def test_names_that_no_page_elsewhere_can_have(host: str) -> None:
    check_name(host, ALLOWED)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "mneme.evil.example", "127.0.0.1.nip.io", "localhost.", "localhost@evil.example", "",
     "[", "a b.c"],
)  # fmt: skip
def test_names_that_one_may_have(host: str) -> None:
    with pytest.raises(BadHeader, match="MNEME_HOSTS"):
        check_name(host, ALLOWED)
