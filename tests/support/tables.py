"""A table of pure cases as one test: pytest takes longer to collect, run and report an item than such a case takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., Any]


def each_of(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, in one test, which tries all cases and then tells those that failed. For tests that ask
    for nothing else: what a fixture made would be the same for every case."""
    given = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [(case,) if len(given) == 1 else tuple(case) for case in cases]
    assert rows, "a table without a case proves nothing"

    def around(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_async() -> None:
                failed: list[Exception] = []
                for row in rows:
                    try:
                        await test(**dict(zip(given, row, strict=True)))
                    except Exception as error:  # noqa: BLE001 whatever it is, the next case is tried, and it is told
                        failed.append(_of(row, error))
                _tell(failed)

            return _bare(run_async)

        @functools.wraps(test)
        def run() -> None:
            failed: list[Exception] = []
            for row in rows:
                try:
                    test(**dict(zip(given, row, strict=True)))
                except Exception as error:  # noqa: BLE001 as above
                    failed.append(_of(row, error))
            _tell(failed)

        return _bare(run)

    return around


def _bare(test: Test) -> Test:
    """Of the original signature pytest would make fixtures."""
    del test.__wrapped__  # type: ignore[attr-defined]  # of functools.wraps
    return test


def _of(row: tuple[Any, ...], error: Exception) -> Exception:
    error.add_note(f"the case: {row!r:.400}")
    return error


def _tell(failed: list[Exception]) -> None:
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ExceptionGroup("cases", failed)
