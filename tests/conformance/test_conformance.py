"""Mneme changes nothing: the whole suite against the real command, in each way that it can be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conformance.__main__ import main
from tests.conformance.check_messages import REQUESTS
from tests.conformance.checks import AREAS, Check, Result, all_checks
from tests.conformance.contenders import CONTENDERS, opened, remember, ways_of_mneme
from tests.conformance.report import Report, keep, kept, page
from tests.conformance.runner import run
from tests.conformance.stage import Stage, Way
from tests.support.replies import Reply, Send, head_of, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import DEADLINE_S

DOCS = Path(__file__).parents[2] / "docs" / "generated"

MB = 1_000_000
OF_HTTP_ITSELF = {
    "headers.hop-by-hop", "headers.host", "response.hop-by-hop", "broken.no-answer", "broken.no-http", "http.expect",
}  # fmt: skip
"""What only somebody in between can do right: of these an upstream without a proxy fails."""

GROWING = 1 + len(REQUESTS)
"""Requests that are compared byte for byte where memory may be added: one of chat completions, and those of /v1/messages."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(reply_json({})) as made:
        yield made


@pytest.fixture(scope="module")
def ways(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[Mapping[str, Way]]:
    folder = tmp_path_factory.mktemp("conformance")
    with MnemeServer(folder, database=module_database, upstream=upstream.url) as server:
        remember(server)
        yield ways_of_mneme(server)


def differences(results: list[Result]) -> dict[str, list[str]]:
    return {each.name: each.differences for each in results if not each.same}


@pytest.mark.parametrize(
    ("name", "large"),
    [
        # what is to be remembered is counted and hashed: ten megabytes of it take seconds
        ("mneme", MB), ("mneme-recorded", MB), ("mneme-bare", 10 * MB),
        pytest.param("mneme", 10 * MB, marks=[pytest.mark.heavy, pytest.mark.timeout(600)]),
        pytest.param("mneme-recorded", 10 * MB, marks=[pytest.mark.heavy, pytest.mark.timeout(600)]),
    ],
)  # fmt: skip
async def test_mneme_changes_nothing(
    ways: Mapping[str, Way], upstream: ScriptedUpstream, name: str, large: int
) -> None:
    # on a busy machine a second is no time; that the connection is closed at all is what counts here
    stage = Stage(upstream, ways[name], closes_within_s=DEADLINE_S, large=large)
    results = await run(stage, all_checks())
    assert differences(results) == {}
    assert stage.grown == (GROWING if name == "mneme" else 0), "memory was there, where it is on"


async def test_the_suite_finds_nothing_where_there_is_nothing_between(upstream: ScriptedUpstream) -> None:
    with opened("none", upstream.url) as way:
        checks = [each for each in all_checks() if each.name != "http.expect"]
        results = await run(Stage(upstream, way), checks)
    assert differences(results).keys() == OF_HTTP_ITSELF - {"http.expect"}


async def test_every_check_can_fail(upstream: ScriptedUpstream) -> None:
    """Against a server that asks nobody and always says the same."""
    stuck = Reply([Send(head_of("418 I'm a teapot", [("content-length", "2"), ("content-encoding", "br")]) + b"no")])
    with ScriptedUpstream(stuck) as teapot:
        stage = Stage(upstream, Way("127.0.0.1", teapot.port), patience_s=0.05)
        checks = [each for each in all_checks() if each.name != "http.expect"]
        results = await run(stage, checks)
    assert {each.name for each in results if each.same} == set()


def test_the_command_tells_what_differs(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with ScriptedUpstream(reply_json({"choices": []})) as deaf:
        file = tmp_path / "out.json"
        arguments = ["--base-url", f"http://127.0.0.1:{deaf.port}/v1", "--only", "request.user", "--json", str(file)]
        done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "the upstream was not asked" in " ".join(done.output.split())
    (found,) = json.loads(file.read_text())
    assert [each["name"] for each in found["results"]] == ["request.user"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say --base-url"),
        (["--base-url", "https://x/v1"], "plain HTTP"),
        (["--base-url", "http://127.0.0.1:9/v1", "--header", "x"], "NAME: VALUE"),
        (["--base-url", "http://127.0.0.1:9/v1"], "nothing listens"),
        (["--proxy", "none", "--only", "nothing"], "no check begins so"),
        (["--proxy", "none", "--only", "http", "--write", "x.md"], "tells of all checks"),
    ],
)
def test_bad_use_is_told(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code != 0
    assert said in " ".join(done.output.replace("│", " ").split())


def test_a_page_is_made_of_what_was_kept(tmp_path: Path) -> None:
    check = Check("http.x", "http", "it | works", "RFC 1", run)  # type: ignore[arg-type]
    for name, seen in (("none", []), ("nginx", ["* 127.0.0.1:4711 and <b>\x00"])):
        known = CONTENDERS[name]
        keep(Report(name, known.title, known.version, known.settings, [Result("http.x", seen, [])]), tmp_path)
    made = page(kept(tmp_path), [check])
    assert "| `x` | it \\| works | RFC 1 | ✗ | ✓ |" in made
    assert "- `http.x`: \\* 127.0.0.1:PORT and &lt;b>\\\\u0000" in made


def test_the_page_tells_of_these_checks() -> None:
    told = (DOCS / "conformance.md").read_text(encoding="utf-8")
    checks = all_checks()
    assert told == page(kept(), checks), "python -m tests.conformance --all --write docs/generated/conformance.md"
    own = [each for each in kept() if each.name.startswith("mneme")]
    assert [len(each.results) for each in own] == [len(checks)] * 3
    assert [each.different for each in own] == [[], [], []]
    assert {each.area for each in checks} == AREAS.keys()
