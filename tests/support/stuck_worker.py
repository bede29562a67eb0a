"""A worker process that begins a job and never ends it: to be killed."""

from __future__ import annotations

import asyncio
import sys

from tests.support.jobs import working


async def stuck(_: bytes) -> None:
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def main() -> None:
    async with working(sys.argv[1], {"test": stuck}):
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.path.insert(0, ".")
    asyncio.run(main())
