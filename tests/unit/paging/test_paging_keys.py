"""What a tool's call was about."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.keys import KEY_CHARS, Family, UnderstoodCall, base_key, family_of, paths, understand, urls


@pytest.mark.parametrize(
    ("tool", "arguments", "family", "key"),
    [
        ("Read", {"file_path": "/srv/app/a.py"}, Family.READ, "/srv/app/a.py"),
        ("Read", {"file_path": "./a.py", "offset": 10, "limit": 31}, Family.READ, "a.py:10-40"),
        ("read_file", {"path": "src//a.ts"}, Family.READ, "src/a.ts"),
        ("read_file", {"target_file": "a.ts", "start_line": 3, "end_line": 9}, Family.READ, "a.ts:3-9"),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a.py"}, Family.EDIT, "a.py"),
        ("view", {"path": "a.py", "view_range": [5, -1]}, Family.READ, "a.py:5-"),
        ("mcp__files__read_file", {"filePath": "a.py"}, Family.READ, "a.py"),
        ("functions.exec", {"command": "make  test"}, Family.SHELL, "make test"),
        ("Bash", {"command": "cat src/a.py"}, Family.READ, "src/a.py"),
        ("Bash", {"command": "cd /srv && sed -n '1,80p' src/a.py"}, Family.READ, "src/a.py:1-80"),
        ("Bash", {"command": "cat a.py | grep x"}, Family.SHELL, "cat a.py | grep x"),
        ("shell", {"command": ["bash", "-lc", "pytest -q"]}, Family.SHELL, "pytest -q"),
        ("shell", {"command": ["git", "status"]}, Family.SHELL, "git status"),
        ("Bash", {"command": "curl -s https://a.example/x?y=1"}, Family.FETCH, "https://a.example/x?y=1"),
        ("Grep", {"pattern": "def main", "path": "src"}, Family.SEARCH, "def main in src"),
        ("search", {"query": "ports"}, Family.SEARCH, "ports"),
        ("WebFetch", {"url": "https://a.example/d", "prompt": "what"}, Family.FETCH, "https://a.example/d"),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, Family.EDIT, "a.py"),
        ("Write", {"content": "x", "file_path": "b.py"}, Family.WRITE, "b.py"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n"}, Family.EDIT, "src/a.py"),
        ("TodoWrite", {"todos": []}, Family.PLAN, "plan"),
        ("LS", {"path": "src"}, Family.LIST, "src"),
        ("get_weather", {"days": 3, "city": "Oslo"}, Family.OTHER, "Oslo"),
        (
            "lookup",
            {"n": 1, "where": {"a": "b"}, "page": "https://a.example/z", "x": "y"},
            Family.OTHER,
            "https://a.example/z",
        ),
        ("ping", {}, Family.OTHER, None),
    ],
)
def test_families_and_keys(tool: str, arguments: dict[str, Any], family: Family, key: str | None) -> None:
    assert understand(tool, json.dumps(arguments)) == UnderstoodCall(tool, family, key)
    assert understand(tool, arguments) == UnderstoodCall(tool, family, key)


def test_arguments_that_are_no_json() -> None:
    assert understand("apply_patch", "*** Begin Patch\n*** Add File: n.py\n+x").key == "n.py"
    assert understand("exec", "ls -la").key == "ls -la"
    assert understand("Read", "{broken").key == "{broken"
    assert understand("Read", "").key is None
    assert understand("Read", "[" * 100_000).family == Family.READ
    assert understand("Read", None).key is None


def test_long_arguments_are_not_parsed_and_long_keys_are_cut() -> None:
    key = understand("Bash", {"command": "x" * 10_000}).key
    assert key is not None
    assert len(key) == KEY_CHARS
    assert understand("Write", '{"content": "' + "x" * 2_000_000).key is not None


def test_the_key_without_its_lines() -> None:
    assert base_key("a.py:1-40") == base_key("a.py:5-") == "a.py"
    assert base_key("http://a.example:80/x") == "http://a.example:80/x"


def test_names_of_unknown_shape() -> None:
    assert family_of("") == Family.OTHER
    assert family_of("Read_File") == family_of("readFile") == Family.READ


def test_urls_and_paths_in_a_text() -> None:
    assert urls("see https://a.example/x, and more.") == ["https://a.example/x"]
    assert paths("open ./src/a.py and README.md") == ["src/a.py", "README.md"]


@given(
    st.text(max_size=60), st.one_of(st.text(max_size=200), st.dictionaries(st.text(max_size=12), st.text(max_size=40)))
)
def test_anything(tool: str, arguments: object) -> None:
    call = understand(tool, arguments)
    assert call.key is None or (call.key == " ".join(call.key.split()) and len(call.key) <= KEY_CHARS)
