"""L1, L2 and stubs of all kinds of content."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from app.features.paging.shrink import (
    L1_CEILING,
    L1_FLOOR,
    L1_RATIO,
    L2_CEILING,
    L2_FLOOR,
    L2_RATIO,
    STUB_TOKENS,
    kind_of,
    shrink,
    stub,
)
from app.features.paging.values import ContentKind
from tests.support.properties import examples
from tests.unit.paging.made import COUNT, LONG_CODE, PROSE, TRACEBACK

FOLDER = Path(__file__).parents[2] / "fixtures" / "micro_faults"
KINDS = {
    "middleware.ts": "code", "retrying.py.txt": "code", "scheduler.go": "code", "schema.sql": "code",
    "deployment.yaml": "code", "change.diff": "diff", "search.txt": "listing", "tree.txt": "listing",
    "design.md": "prose", "incident.txt": "prose", "notes.txt": "prose", "plan.txt": "prose", "reference.md": "prose",
    "gateway.log": "log", "tests.out": "log", "build.out": "log", "orders.json": "json", "pod.json": "json",
    "sales.csv": "table", "activity.txt": "table",
}  # fmt: skip


@pytest.mark.parametrize("file", KINDS)
def test_kinds_of_the_labelled_objects(file: str) -> None:
    entry = next(each for each in yaml.safe_load((FOLDER / "questions.yaml").read_text()) if each["file"] == file)
    assert kind_of((FOLDER / file).read_text(), entry["tool"], entry["key"]) == KINDS[file]


@pytest.mark.parametrize(
    ("text", "tool", "key", "kind"),
    [
        (LONG_CODE, None, None, ContentKind.CODE),
        (PROSE, None, None, ContentKind.PROSE),
        (TRACEBACK, "Bash", "python x.py", ContentKind.LOG),
        ('{"a": 1}', "Read", "a.md", ContentKind.JSON),
        ("a,b,c\n1,2,3\n4,5,6\n7,8,9", "Read", "a.csv", ContentKind.TABLE),
        ("[1, 2", None, None, ContentKind.PROSE),
        ("", None, None, ContentKind.PROSE),
        ("src/a.py:1:x\nsrc/a.py:2:y\nsrc/b.py:9:z", "Bash", "rg x", ContentKind.LISTING),
    ],
)
def test_kinds(text: str, tool: str | None, key: str | None, kind: ContentKind) -> None:
    assert kind_of(text, tool, key) == kind


@pytest.mark.parametrize("file", KINDS)
def test_levels_have_the_seeds_sizes(file: str) -> None:
    text = (FOLDER / file).read_text()
    kind = ContentKind(KINDS[file])
    total = COUNT(text)
    made = shrink(text, kind, COUNT, file)
    assert COUNT(made.detailed.text) == made.detailed.tokens <= max(L1_FLOOR, total * L1_RATIO)
    assert COUNT(made.compact.text) == made.compact.tokens <= max(L2_FLOOR, total * L2_RATIO)
    assert made.detailed.tokens >= 0.5 * min(total, max(L1_FLOOR, total * L1_RATIO)), "and uses them"
    assert made.detailed.losses
    assert made.compact.losses
    assert made.fault_when
    assert shrink(text, kind, COUNT, file) == made, "the same every time"


def test_the_seeds_stub() -> None:
    text = (FOLDER / "middleware.ts").read_text()
    line = stub(text, ContentKind.CODE, COUNT, "Read", "src/auth/middleware.ts")
    assert line.startswith("Read src/auth/middleware.ts (106 lines, TypeScript: ")
    assert "verifyToken" in line


def test_the_stub_of_a_long_output_says_how_it_really_ends() -> None:
    told = "".join(f"step {n} of the build: ok\n" for n in range(1, 4001))
    assert stub(told, ContentKind.LOG, COUNT).endswith("(4,000 lines, output, ends: step 4000 of the build: ok)")
    failed = f"{told}ERROR: no space left on device\n"
    assert "with errors: ERROR: no space left" in stub(failed, ContentKind.LOG, COUNT)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (TRACEBACK, ContentKind.LOG, "with errors"),
        ("[1, 2, 3]", ContentKind.JSON, "JSON, 3 elements"),
        ('{"kind": "Pod", "spec": {}}', ContentKind.JSON, "JSON: kind, spec"),
        (PROSE, ContentKind.PROSE, "The harbour was rebuilt"),
        ("a,b\n1,2\n3,4\n", ContentKind.TABLE, "lines"),
    ],
)
def test_a_stub_says_what_it_is(text: str, kind: ContentKind, says: str) -> None:
    assert says in stub(text, kind, COUNT, "t", "k")


def test_nothing_that_is_huge_takes_long_or_much() -> None:
    for text in (
        "x" * 10_000_000,
        "line of a log 12:00:00 ok\n" * 400_000,
        json.dumps([{"id": i} for i in range(200_000)]),
    ):
        began = time.process_time()
        kind = kind_of(text)
        made = shrink(text, kind, COUNT)
        assert made.detailed.tokens <= L1_CEILING
        assert made.compact.tokens <= L2_CEILING
        assert COUNT(stub(text, kind, COUNT)) <= STUB_TOKENS
        assert time.process_time() - began < 20
    deep = "[" * 200_000 + "]" * 200_000
    assert shrink(deep, kind_of(deep), COUNT).compact.tokens <= L2_CEILING


@examples(150)
@example("a:\n\n  b: 1\n", ContentKind.CODE, "a.yaml")
@given(
    st.one_of(
        st.text(max_size=3000),
        st.lists(st.text(max_size=80), max_size=80).map("\n".join),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
            max_leaves=60,
        ).map(json.dumps),
    ),
    st.sampled_from(ContentKind),
    st.sampled_from([None, "a.py", "a.yaml", "a.ts"]),
)
def test_never_larger_than_the_level_above(text: str, kind: ContentKind, key: str | None) -> None:
    made = shrink(text, kind, COUNT, key)
    assert made.compact.tokens <= made.detailed.tokens <= max(COUNT(text), 1)
    line = stub(text, kind, COUNT, "Read", key)
    assert COUNT(line) <= STUB_TOKENS
    assert "\n" not in line
