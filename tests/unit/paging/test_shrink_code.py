"""Code without its bodies."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.features.paging.shrink import BODY, CONSTANT, DOC, EXIT, IMPORT, SIGNATURE, code_outline, config, shrink
from app.features.paging.values import ContentKind
from tests.unit.paging.made import CODE, COUNT, LONG_CODE


def groups(text: str, language: str | None) -> dict[str, int]:
    return {line.text.strip(): line.group for line in code_outline(text, language).lines}


@pytest.mark.parametrize("code", [CODE, "\n".join(f"{i:>6}→{line}" for i, line in enumerate(CODE.splitlines(), 1))])
def test_python_by_its_tree(code: str) -> None:
    found = groups(code, "Python")
    assert found["def convert_currency(amount: Decimal, rate: Decimal) -> Decimal:"] == SIGNATURE
    assert found["class MoneyError(ValueError):"] == SIGNATURE
    assert found["from decimal import Decimal"] == IMPORT
    assert found['SCALE = Decimal("0.01")'] == CONSTANT
    assert found['raise MoneyError("a rate is positive")'] == EXIT
    assert found['"""The amount in another currency, rounded half up."""'] == DOC
    assert found["scaled = amount * rate"] == BODY


def test_python_that_does_not_parse_is_read_by_its_lines() -> None:
    found = groups("def first(:\n    return 1\nimport os\n", "Python")
    assert found["def first(:"] == SIGNATURE
    assert found["import os"] == IMPORT


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("TypeScript", "export async function authMiddleware(req: Request): Promise<void> {"),
        ("TypeScript", "export const read = async (path: string): Promise<string> => {"),
        ("TypeScript", "  private async readToken(req: Request): string {"),
        ("Go", "func (s *Scheduler) Submit(job *Job) error {"),
        ("Rust", "pub fn parse(input: &str) -> Result<Ast, Error> {"),
        ("Java", "    public static void main(String[] args) {"),
        ("C", "static int read_all(int fd, char *out) {"),
        ("SQL", "CREATE TABLE parts ("),
        ("Ruby", "  def total(lines)"),
    ],
)
def test_signatures_of_other_languages(language: str, line: str) -> None:
    assert groups(f"x = 1\n{line}\n  if (a) {{\n", language) == {
        "x = 1": BODY,
        line.strip(): SIGNATURE,
        "if (a) {": BODY,
    }


def test_l1_has_every_signature_and_says_that_bodies_are_missing() -> None:
    made = shrink(LONG_CODE, ContentKind.CODE, COUNT, "money.py")
    assert all(f"def helper_{i}(value: int) -> int:" in made.detailed.text for i in range(30))
    assert "which classes and functions it has, and their signatures" in made.detailed.can_answer
    assert any(each.startswith("bodies: ") for each in made.detailed.losses)
    assert "you need the body of a function, or mean to edit the file" in made.fault_when


def test_settings_by_their_sections() -> None:
    lines = config("[tool]\nname = 'x'\n    deep: 1\n# why\nspec:\n  size: 3\n").lines
    assert [each.group for each in lines] == [0, 1, 2, 2, 0, 1]


@pytest.mark.parametrize(
    "code",
    [
        "(" * 5000,
        "x = " + "-" * 50_000 + "1",
        "def f():\n" + " " * 900 + "pass",
        "\0\nimport x",
        "class A:\x0c\n  pass\n",
    ],
)
def test_hostile_python(code: str) -> None:
    assert code_outline(code, "Python").lines


def test_threads_get_the_same_outline() -> None:
    """CPython 3.11's parser fails where another thread parses in the middle of it (gh-106905), which a collection lets it
    do; and what fails is read by its lines."""
    alone = code_outline(CODE, "Python")
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.callbacks.append(lambda *_: [None for _ in range(100)])
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: code_outline(CODE, "Python"), range(48)))
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert all(each == alone for each in found)
