"""Runs checks, one after the other: each is alone with the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tests.conformance.checks import Check, Result, Seen
from tests.conformance.stage import NotForwarded, Stage

LIMIT_S = 40.0
"""Seconds for one check; its own waits are shorter."""


async def run(
    stage: Stage, checks: Iterable[Check], tell: Callable[[Check, Result], None] | None = None
) -> list[Result]:
    """What each check saw. Whatever goes wrong in one is a difference that it saw."""
    results: list[Result] = []
    for each in checks:
        result = await run_one(stage, each)
        results.append(result)
        if tell is not None:
            tell(each, result)
    return results


async def run_one(stage: Stage, check: Check) -> Result:
    """One check."""
    seen = Seen()
    try:
        async with asyncio.timeout(LIMIT_S):
            await check.run(stage, seen)
    except NotForwarded as error:
        seen.differs(str(error))
    except TimeoutError:
        seen.differs("no answer, or no end of it")
    except (ConnectionError, EOFError) as error:
        seen.differs(f"no whole answer: {type(error).__name__}")
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        # what came is of another kind than what was expected
        seen.differs(f"something else altogether: {type(error).__name__}: {error}")
    return Result(check.name, seen.differences, seen.notes)
