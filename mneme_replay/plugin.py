"""The pytest plugin: `mneme_replay` is an OpenAI-compatible server that answers a test from its cassettes, or records them.

Nothing but pytest is imported until a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

if TYPE_CHECKING:
    from mneme_replay.session import Replay, TestCassettes
    from mneme_replay.session import Server as ReplayServer

RecordMode = Literal["none", "once", "new", "all"]
MODES: tuple[str, ...] = get_args(RecordMode)
DEFAULT_UPSTREAM = "https://api.openai.com/v1"
MAX_FOLDER_CHARS = 100
"""Longest name of a folder; file systems take 255 bytes."""

_PASSED = pytest.StashKey[bool]()
_CASSETTES = pytest.StashKey["TestCassettes"]()
_MARKER = (
    "mneme(cassettes=None, record=None, match='normalised', reuse='once', speed=0, ignore=(), misses='fail'): "
    "how the fixtures mneme_replay and mneme_cassette answer this test"
)


def _speed(text: str) -> float:
    from mneme_replay.timing import parse_speed

    return parse_speed(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mneme", "replay of recorded LLM calls")
    group.addoption(
        "--mneme-record",
        choices=MODES,
        help="none: only replay; once: what has no cassettes; new: what is missing; all.",
    )
    group.addoption("--mneme-upstream", metavar="URL", help="Where recordings go, with /v1 (MNEME_RECORD_UPSTREAM).")
    group.addoption("--mneme-speed", type=_speed, help="Of replays: 0 at once, 1 as recorded, 2 twice as fast.")
    parser.addini("mneme_record", f"one of {', '.join(MODES)}", default="none")
    parser.addini("mneme_upstream", "base URL that is recorded from, with /v1", default="")
    parser.addini("mneme_cassettes", "folder of cassettes beside each test file", default="cassettes")
    parser.addini("mneme_match", "normalised, strict, prompt or sequence", default="normalised")
    parser.addini("mneme_ignore", "JSON paths of requests that do not count", type="linelist", default=[])
    parser.addini("mneme_redact", "JSON paths to take out of recordings", type="linelist", default=[])
    parser.addini("mneme_redact_headers", "headers to take the values out of", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed leaves no cassettes, and tells what it missed: the application may have kept that to itself."""
    report = yield
    if report.when == "call" and "mneme_cassette" in getattr(item, "fixturenames", ()):
        item.stash[_PASSED] = report.passed
        cassettes = item.stash.get(_CASSETTES, None)
        if report.failed and cassettes is not None and (missed := cassettes.missed()):
            report.sections.append(("Requests without a cassette", missed))
    return report


@pytest.fixture(scope="session")
def _mneme_server() -> Iterator[ReplayServer]:
    from mneme_replay.session import Server

    with Server() as server:
        yield server


@pytest.fixture
def mneme_cassette(request: pytest.FixtureRequest) -> Iterator[TestCassettes]:
    """The cassettes of this test, in process: `deck`, `add_routes(respx_mock, base_url)`, `folder`."""
    from mneme_replay.cassette import CassetteError
    from mneme_replay.session import TestCassettes

    try:
        cassettes = TestCassettes(**_options(request))
    except (CassetteError, ValueError, TypeError) as error:
        pytest.fail(str(error), pytrace=False)
    request.node.stash[_CASSETTES] = cassettes
    yield cassettes
    try:
        told = cassettes.finish(passed=request.node.stash.get(_PASSED, False))
    except CassetteError as error:
        told = str(error)
    if told:
        pytest.fail(told, pytrace=False)


@pytest.fixture
def mneme_replay(
    mneme_cassette: TestCassettes, _mneme_server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Replay]:
    """An OpenAI-compatible server of this test's own: `base_url`, `api_key`. OPENAI_BASE_URL and OPENAI_API_KEY name it."""
    with _mneme_server.serving(mneme_cassette) as replay:
        monkeypatch.setenv("OPENAI_BASE_URL", replay.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", replay.api_key)
        yield replay


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the marker, else the command line, else the configuration says."""
    config = request.config
    marker = request.node.get_closest_marker("mneme")
    given: dict[str, Any] = dict(marker.kwargs) if marker else {}
    if marker is not None and marker.args:
        raise TypeError(f"@pytest.mark.mneme takes names only: {_MARKER}")
    named = given.pop("cassettes", None)
    path = request.node.path
    if named is None:
        name = _safe(request.node.name)
        above = [_safe(request.node.cls.__name__)] if getattr(request.node, "cls", None) else []
        folders = [path.parent.joinpath(config.getini("mneme_cassettes"), path.stem, *above, name)]
    else:
        folders = [path.parent / each for each in ([named] if isinstance(named, str | Path) else named)]
    speed = config.getoption("mneme_speed")
    return {
        "folders": folders,
        "record": config.getoption("mneme_record") or given.pop("record", None) or config.getini("mneme_record"),
        "upstream": config.getoption("mneme_upstream")
        or os.environ.get("MNEME_RECORD_UPSTREAM")
        or config.getini("mneme_upstream")
        or DEFAULT_UPSTREAM,
        "match": given.pop("match", None) or config.getini("mneme_match"),
        "speed": speed if speed is not None else given.pop("speed", 0.0),
        "ignore": [*config.getini("mneme_ignore"), *given.pop("ignore", ())],
        "redact": config.getini("mneme_redact"),
        "redact_headers": config.getini("mneme_redact_headers"),
    } | {name: value for name, value in given.items() if name not in ("record", "speed")}


def _safe(name: str) -> str:
    """The name of a test as that of a folder; names that become the same are told apart by a hash."""
    plain, _, parameters = name.partition("[")
    wanted = f"{plain}-{parameters[:-1]}" if parameters else plain
    safe = "".join(each if each.isalnum() or each in "-_." else "-" for each in wanted)[:MAX_FOLDER_CHARS].strip(".")
    return safe if safe == wanted else f"{safe}-{blake2b(name.encode(errors='replace'), digest_size=3).hexdigest()}"
