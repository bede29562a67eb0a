"""Look up the names of code that a documentation page gives: `path:name`, commands, settings, routes and metrics.

Python is parsed, not imported, so that a page may name a module that is heavy to load.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w./-]+\.[a-z]+)(?:::?([\w.]+))?`")
"""A file, and perhaps a name in it: `app/memory/text.py:rank`, `tests/unit/test_x.py::test_y`."""
COMMAND = re.compile(r"`python -m ([\w.]+)[^`]*`")
SETTING = re.compile(r"`MNEME_(\w+)(…?)[^`]*`")
ROUTE = re.compile(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`")
METRIC = re.compile(r"`(mneme_\w+)`")
DOCUMENT = re.compile(r"(?<![\w/`])(?:docs|app|sql|deploy|loadtests)/[\w./-]+\.[a-z]+\b")
SQL_OBJECTS = "TABLE|FUNCTION|PROCEDURE|VIEW|TYPE|INDEX|SCHEMA|TRIGGER|POLICY"
SQL_DEFINITIONS = (
    rf"CREATE (?:OR REPLACE )?(?:UNIQUE |UNLOGGED )*(?:{SQL_OBJECTS})(?: IF NOT EXISTS)? (?:agent_data\.)?([\w.]+)",
    r"^-- name: (\w+)",  # a query
    r"^    (\w+) +(?:uuid|text|jsonb|boolean|smallint|integer|bigint|real|timestamptz|bytea|halfvec)\b",  # a column
    r"^\s*\('(\w+)', '",  # a value of `system_config`
)
YAML_DEFINITIONS = (r"^\s*- alert: (\w+)", r"^\s*(?:- )?(\w+):")


def find_missing(text: str) -> list[str]:
    """Return the code, tests, commands, settings, routes and metrics that a text names and the repository lacks."""
    missing = [f"{path}:{name}" for path, name in NAMED.findall(text) if not is_defined(path, name)]
    missing += [f"python -m {module}" for module in COMMAND.findall(text) if not is_command(module)]
    missing += [f"MNEME_{name}" for name, more in SETTING.findall(text) if not is_setting(name, is_prefix=bool(more))]
    missing += [route for route in ROUTE.findall(text) if not is_route(route)]
    missing += [
        metric for metric in METRIC.findall(text) if not re.search(rf"\b{metric}\b", _read_generated("metrics.md"))
    ]
    return missing + [path for path in DOCUMENT.findall(text) if not (ROOT / path).exists()]


def is_defined(path: str, name: str = "") -> bool:
    """Return whether a file is there and, if a name is given, defines it."""
    file = ROOT / path
    return file.exists() and (not name or name in find_definitions(file))


def is_command(module: str) -> bool:
    """Return whether `python -m` runs a module: one that looks at its own name, or a package with a `__main__`."""
    file = ROOT.joinpath(*module.split("."))
    if file.is_dir():
        return (file / "__main__.py").exists()
    file = file.with_suffix(".py")
    return file.exists() and 'if __name__ == "__main__":' in file.read_text()


def is_setting(name: str, *, is_prefix: bool) -> bool:
    """Return whether `MNEME_<name>` is a setting, or the beginning of one."""
    names = find_definitions(ROOT / "app" / "settings.py")
    return any(setting == name.lower() or (is_prefix and setting.startswith(name.lower())) for setting in names)


def is_route(route: str) -> bool:
    """Return whether `GET /api/v1/…` is in docs/generated/api.md, whatever its parameters are called."""
    headings = re.findall(r"^### `(.*)`$", _read_generated("api.md"), re.MULTILINE)
    return re.sub(r"{\w+}", "{}", route) in {re.sub(r"{\w+}", "{}", heading) for heading in headings}


@cache
def find_definitions(file: Path) -> frozenset[str]:
    """Return the names that a file defines.

    Python: functions, classes, constants and attributes, those of a class also as `Class.name`; no local variables.
    SQL: what is created, queries, columns, values of `system_config`. YAML: keys and alerts. Other files: every word.
    """
    text = file.read_text()
    if file.suffix == ".py":
        return frozenset(_find_python(ast.parse(text).body, ""))
    patterns = {".sql": SQL_DEFINITIONS, ".yml": YAML_DEFINITIONS, ".yaml": YAML_DEFINITIONS}.get(
        file.suffix, (r"(\w+)",)
    )
    return frozenset(name for pattern in patterns for name in re.findall(pattern, text, re.MULTILINE))


def _find_python(body: list[ast.stmt], owner: str) -> Iterator[str]:
    for statement in body:
        names: list[str] = []
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [statement.name, *(_attributes(statement) if owner else ())]
        elif isinstance(statement, ast.ClassDef):
            names = [statement.name]
            yield from _find_python(statement.body, statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        for name in names:
            yield name
            if owner:
                yield f"{owner}.{name}"


def _attributes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield what a method assigns to `self`."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


@cache
def _read_generated(name: str) -> str:
    return (ROOT / "docs" / "generated" / name).read_text()
