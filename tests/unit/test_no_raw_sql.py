"""SQL on Mneme's schema stands in one module of the tests besides those of the store, so a change of the schema touches few."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
STATEMENT = re.compile(
    r"\b(?:SELECT|FROM|JOIN|INTO|UPDATE|TABLE|TRUNCATE|ONLY)\s+(?:agent_data|seed_00\d)\.", re.IGNORECASE
)
ALLOWED = (
    "integration/store/",
    "support/rows.py",
    "unit/test_no_raw_sql.py",
    # The tests of the store share these.
    "support/lives.py",
    "support/plans.py",
    "support/seeded.py",
    "support/teller.py",
    # The database itself is looked at here, whatever is in it: dumps and copies of all tables.
    "support/dump.py",
    "support/reused.py",
    # These worlds hold more rows than the API takes in a test's time.
    "support/ui_many.py",
    "support/ui_world_past.py",
)


def find_sql(source: str) -> Iterator[int]:
    """Yield the lines of string literals, docstrings left out, that state SQL on the schema."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    literals = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documentation)
    for literal in literals:
        if isinstance(literal.value, str) and STATEMENT.search(literal.value):
            yield literal.lineno


def test_only_the_store_s_tests_and_one_module_state_sql() -> None:
    stated = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not str(path.relative_to(TESTS)).startswith(ALLOWED)
        for line in find_sql(path.read_text())
    ]
    assert stated == [], "read and write rows by a function of tests/support/rows.py, or of the store"


def test_a_statement_is_found_and_a_docstring_is_not() -> None:
    found = 'rows = fetch("SELECT 1 FROM agent_data.memory_store")'
    assert list(find_sql(f'"""See {found!r}."""\n{found}\nx = f"UPDATE agent_data.{{table}} SET a = 1"')) == [2, 3]
