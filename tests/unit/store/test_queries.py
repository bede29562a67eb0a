from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import NotReady
from app.store.queries import SQL_DIR, Queries


def load(directory: Path, **files: str) -> Queries:
    for name, text in files.items():
        (directory / f"{name}.sql").write_text(text, encoding="utf-8")
    return Queries.load(directory)


def test_blocks_are_found_by_file_and_name(tmp_path: Path) -> None:
    queries = load(
        tmp_path,
        turns="-- What this file is about.\n\n-- name: head\n-- Finds the head.\n-- Two lines.\nSELECT 1\nWHERE true;\n\n"
        "-- name: tail\n-- Finds the tail.\nSELECT 2",
        users="-- name: head\n-- Another file may use the name again.\nSELECT 3;\n",
    )
    assert dict(queries) == {
        "turns.head": "SELECT 1\nWHERE true",
        "turns.tail": "SELECT 2",
        "users.head": "SELECT 3",
    }
    assert len(queries) == 3


def test_unknown_name_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"turns\.nothing"):
        load(tmp_path)["turns.nothing"]


def test_comments_inside_a_statement_stay(tmp_path: Path) -> None:
    queries = load(tmp_path, a="-- name: b\n-- Why.\nSELECT 1 -- one; and only\n, 2;")
    assert queries["a.b"] == "SELECT 1 -- one; and only\n, 2"


@pytest.mark.parametrize(
    "statement",
    ["SELECT ';'", "SELECT 'it''s;'", 'SELECT 1 AS ";"', "SELECT $$a;b$$", "SELECT $x$ $$;$$ $x$", "SELECT 1 /* ; */"],
)
def test_semicolons_that_end_nothing(tmp_path: Path, statement: str) -> None:
    assert load(tmp_path, a=f"-- name: b\n-- Why.\n{statement};\n")["a.b"] == statement


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT 1;\n", "before the first"),
        ("-- a comment only\nSELECT 1;\n-- name: b\n-- Why.\nSELECT 2;", "before the first"),
        ("-- name: b\nSELECT 1;\n", "`b` has no comment"),
        ("-- name:\n-- Why.\nSELECT 1;\n", "is no name"),
        ("-- name: two words\n-- Why.\nSELECT 1;\n", "is no name"),
        ("-- name: Bad-Name\n-- Why.\nSELECT 1;\n", "is no name"),
        ("-- name: b\n-- Why.\nSELECT 1;\nSELECT 2;\n", "`b` is not exactly one statement"),
        ("-- name: b\n-- Why.\n", "`b` is not exactly one statement"),
        ("-- name: b\n-- Why.\n;\n", "`b` is not exactly one statement"),
        ("-- name: b\n-- Why.\nSELECT 1;\n-- name: b\n-- Why.\nSELECT 1;\n", "two queries named `b`"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(NotReady, match=says) as caught:
        load(tmp_path, turns=text)
    assert caught.value.message.startswith("turns.sql: ")


def test_the_shipped_queries_load() -> None:
    queries = Queries.load()
    assert queries
    assert {path.stem for path in (SQL_DIR / "queries").glob("*.sql")} == {name.split(".")[0] for name in queries}
