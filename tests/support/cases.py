"""Tables of cases that share what a test is given: `pytest.mark.parametrize` would make a database for each row."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., Awaitable[None]]


def cases(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """`parametrize` in one test: a row that fails is reported with its values, and the others are tried. Rows leave nothing
    behind that another looks at."""
    given = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    table = [dict(zip(given, [row] if len(given) == 1 else row, strict=True)) for row in rows]
    assert table, "no case, no test"

    def made(test: Test) -> Test:
        @wraps(test)
        async def each_case(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for row in table:
                with subtests.test(**row):
                    await test(**fixtures, **row)

        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in given]
        subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        each_case.__signature__ = signature.replace(parameters=[*fixtures, subtests])  # type: ignore[attr-defined]
        del each_case.__wrapped__
        return each_case

    return made
