"""Every block of code in the documents is run or read, as it stands there, or says why it cannot be."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from app.features.knowledge.ontology_yaml import read as ontology
from app.settings import KEY, Settings
from tests.support.database import connected
from tests.support.documents import FIGURES, READ, ROOT, RUN, Block, Reader, blocks, documents, parse
from tests.support.server import MnemeServer

ALL = [each for document in documents() for each in blocks(document)]
OURS = [each for each in ALL if not each.elsewhere]
SPOKEN = {each.document for each in OURS if each.language in ("sh", "python")}
"""Documents with something to run on a server."""
EMBEDDED = {"README.md", "docs/tutorial/first-hour.md"}
"""Those on the embedded Postgres: the README promises one, and the doctor wants one with fsync on."""
APART = {"examples/sample-domain/README.md"}
"""One that has a Postgres of its own besides: it makes a database and a role."""

FIRST = ("README.md", "docs/generated/api.md")
"""What a newcomer reads first; the others run in `make test-all`."""
NOT_RUN: Counter[str] = Counter(
    {
        "CONTRIBUTING.md": 2,
        "README.md": 1,
        "docs/how-to/cassettes.md": 1,
        "docs/how-to/clients.md": 2,
        "docs/reference/data.md": 2,
        "docs/how-to/archive.md": 1,
        "docs/how-to/domain-database.md": 2,
        "docs/how-to/helper-llm.md": 1,
        "docs/how-to/insights.md": 1,
        "docs/how-to/operations.md": 5,
        "docs/how-to/scaling.md": 1,
        "docs/how-to/tracing.md": 1,
        "docs/how-to/vllm.md": 1,
        "examples/sample-domain/README.md": 1,
        "examples/vllm/README.md": 1,
    }
)
"""How many blocks of each document are not run here or anywhere. One more is a decision."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    """One server for all documents that want nothing particular of it, but for docs/how-to/mcp.md's `/mcp`."""
    folder, settings = tmp_path_factory.mktemp("documents"), {"MCP": "on"}
    with MnemeServer(folder, database=module_database, upstream=None, worker=True, settings=settings) as server:
        yield server


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MnemeServer]:
    """What `make serve` starts."""
    folder = tmp_path_factory.mktemp("embedded")
    settings = {"DATA_DIR": str(folder / ".mneme")}  # for commands in other folders
    with MnemeServer(folder, database=None, upstream=None, worker=True, settings=settings) as server:
        yield server


@contextmanager
def _served(folder: Path, database: str | None, settings: str) -> Iterator[MnemeServer]:
    given = {"RETRIEVAL_DEADLINE_MS": "100000"}  # a busy machine must change nothing
    given |= dict(each.split("=", 1) for each in settings.split() if "=" in each)
    with MnemeServer(folder, database=database, upstream=None, settings=given) as server:
        yield server


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "document", [pytest.param(each, marks=[] if each in FIRST else pytest.mark.heavy) for each in sorted(SPOKEN)]
)
def test_what_is_shown_runs(document: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    reader = Reader(tmp_path)
    apart = document in APART
    settings: str | None = "" if apart else None
    todo = [each for each in OURS if each.document == document and each.language in ("sh", "python")]
    while todo:
        settings = todo[0].notes.get("server", settings)
        here = [todo.pop(0)]
        while todo and "server" not in todo[0].notes:
            here.append(todo.pop(0))
        with ExitStack() as stack:
            if settings is None:
                server = request.getfixturevalue("embedded" if document in EMBEDDED else "shared")
            else:
                database = None if apart else request.getfixturevalue("module_database")
                server = stack.enter_context(_served(tmp_path, database, settings))
            for block in here:
                reader.run(block, server)


def test_every_header_that_the_page_promises_is_there(shared: MnemeServer) -> None:
    page = (ROOT / "docs" / "reference" / "headers.md").read_text()
    answer = shared.http.post(
        "/v1/chat/completions", json={"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]},
        headers={"X-Mneme-Paging": "on"},
    )  # fmt: skip
    promised = set(re.findall(r"^\| `(x-mneme-[a-z-]+)`", page, re.MULTILINE))
    at_times = {"x-mneme-durability", "x-mneme-paging", "x-mneme-attempts", "x-mneme-space"}
    assert len(promised) > len(at_times)
    assert promised - at_times <= set(answer.headers)


@pytest.mark.parametrize("block", [each for each in OURS if each.language == "sql"], ids=lambda block: block.place)
async def test_sql_runs_on_the_schema(block: Block, database: str) -> None:
    assert not re.search(r"ALTER SYSTEM|(CREATE|ALTER|DROP) (ROLE|DATABASE)", block.text), (
        "it would be every test's server"
    )
    async with connected(database) as connection:
        await connection.execute(block.text)


def test_what_is_to_be_read_can_be_read() -> None:
    count = 0
    for block in OURS:
        if block.language in READ:
            count += 1
            match block.language:
                case "json":
                    json.loads(block.text)
                case "yaml":
                    loaded = yaml.safe_load(block.text)
                    assert isinstance(loaded, dict), block.place
                    if "domain" in loaded:  # an ontology
                        assert not ontology(block.text).errors, block.place
                case "toml":  # mneme.toml
                    given = tomllib.loads(block.text)
                    assert given.keys() <= Settings.model_fields.keys(), block.place
                    Settings.model_validate(given)
    assert count >= 5


def test_the_settings_of_examples_are_ones() -> None:
    (found,) = (ROOT / "examples").glob("*/mneme.toml")
    Settings.model_validate(given := tomllib.loads(found.read_text()))
    assert given.keys() <= Settings.model_fields.keys()


def test_no_block_is_neither_run_nor_excused() -> None:
    assert {each.language for each in ALL} <= RUN | READ | FIGURES, "sh is `sh`, and what is no code has no language"
    assert Counter(each.document for each in ALL if "not run" in each.notes) == NOT_RUN, told()
    for each in ALL:
        assert each.language != "js" or "run by" in each.notes, each.place
        if "run" in each.notes:
            assert each.document == "docs/how-to/operations.md", each.place
        if by := each.notes.get("run by"):
            assert (ROOT / by).is_file(), each.place


def told() -> str:
    """The blocks that are not run, with their reasons."""
    return "\n".join(f"{each.place}: {each.notes['not run']}" for each in ALL if "not run" in each.notes)


def test_every_setting_that_a_block_names_is_one() -> None:
    known = {f"MNEME_{name.upper()}" for name in Settings.model_fields} | {KEY}
    test_s = re.compile(r"MNEME_(TEST_\w+|CLIENTS_TABLE|RECORD_UPSTREAM)")
    for each in ALL:
        for name in re.findall(r"\bMNEME_[A-Z_]+\b", each.text):
            assert name in known or test_s.match(name), f"{each.place}: {name} is no setting"


def test_every_link_leads_somewhere() -> None:
    for document in documents():
        text = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
            path, _, anchor = "".join(target).partition("#")
            if "://" in path:
                continue
            found = (ROOT / document).parent / path if path else ROOT / document
            assert found.exists(), f"{document}: {path}"
            if anchor and found.suffix == ".md":
                assert anchor in _anchors(found.read_text()), f"{document}: {path}#{anchor}"


def _anchors(text: str) -> set[str]:
    """Of the headings, as the usual viewers name them."""
    heads = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each) for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in heads}


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\(([\w-]+/[\w-]+\.md)[)#]", (ROOT / "docs" / "README.md").read_text()))
    there = {str(each.relative_to(ROOT / "docs")) for each in (ROOT / "docs").glob("*/*.md")}
    assert named == there


def test_the_notes_of_a_block_are_read() -> None:
    (first, second) = parse("x.md", "a\n<!-- not run: no reason -->\n```sh\nls\n```\n\n```json\n{}\n```\n")
    assert (first.line, first.language, first.text, first.notes) == (3, "sh", "ls\n", {"not run": "no reason"})
    assert first.elsewhere
    assert (second.language, second.elsewhere) == ("json", False)
    for wrong in ("```sh\nls\n", "<!-- not run: why -->\n\n```sh\n```\n", "<!-- ran: why -->\n```sh\n```\n"):
        with pytest.raises(AssertionError, match=r"x\.md:\d"):
            parse("x.md", wrong)
