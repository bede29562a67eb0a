"""The queries of `sql/queries/*.sql`, by name.

A file is a list of blocks: a name, at least one line that says what the query is for, and one statement.

    -- name: head
    -- The session that a chain of messages belongs to.
    SELECT … ;

`Queries.load()["turns.head"]` is the statement of block `head` in `turns.sql`, without its comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from app.errors import NotReady

SQL_DIR = Path(__file__).parents[2] / "sql"
"""`sql/` of the checkout, or beside the installed package."""

_NAME = re.compile(r"^-- name:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_COMMENT = re.compile(r"(?:[ \t]*--[^\n]*\n)+")
# What may hold a semicolon that ends nothing: literals, quoted names, dollar quotes, comments.
_OPAQUE = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|(\$\w*\$).*?\1|--[^\n]*|/\*.*?\*/", re.DOTALL)


class Queries(Mapping[str, str]):
    """Statements by `file.name`. Raises NotReady when a block is unnamed, uncommented, doubled or not one statement."""

    def __init__(self, statements: Mapping[str, str]) -> None:
        self._statements = dict(statements)

    @classmethod
    @cache
    def load(cls, directory: Path = SQL_DIR / "queries") -> Queries:
        """Every block of every file in `directory`. Read once: the files are part of the program."""
        statements: dict[str, str] = {}
        for path in sorted(directory.glob("*.sql")):
            for name, statement in _blocks(path.name, path.read_text(encoding="utf-8")):
                key = f"{path.stem}.{name}"
                if key in statements:
                    raise NotReady(f"{path.name}: there are two queries named `{name}`.")
                statements[key] = statement
        return cls(statements)

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)


def _blocks(file: str, text: str) -> Iterator[tuple[str, str]]:
    before, *parts = _NAME.split(text)
    if _OPAQUE.sub("", before).strip():
        raise NotReady(f"{file}: a statement stands before the first `-- name:`.")
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if not _IDENTIFIER.fullmatch(name):
            raise NotReady(f"{file}: `-- name: {name}` is no name (lower case, digits, underscores).")
        body = body.lstrip("\n")
        comment = _COMMENT.match(body)
        if comment is None:
            raise NotReady(f"{file}: query `{name}` has no comment that says what it is for.")
        statement = body[comment.end() :].strip().removesuffix(";").rstrip()
        code = _OPAQUE.sub("", statement)
        if not code.strip() or ";" in code:
            raise NotReady(f"{file}: query `{name}` is not exactly one statement.")
        yield name, statement
