"""Sorts a pile of letters, many at a time: the asynchronous client and structured output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from openai import AsyncOpenAI
from pydantic import BaseModel

from support_desk.desk import MODEL

AT_ONCE = 4
"""Letters that are read at the same time."""
TASK = "Sort this letter to a chocolate shop."


class Sorted(BaseModel):
    """Where a letter belongs."""

    topic: Literal["delivery", "refund", "praise", "other"]
    urgent: bool


async def triage(letters: Sequence[str]) -> list[Sorted]:
    """Sort letters, in their order. What they say is nobody's memory: Mneme is told to leave them alone."""
    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncOpenAI(default_headers={"X-Mneme-Memory": "off"}) as client:

        async def one(letter: str) -> Sorted:
            async with turns:
                answer = await client.chat.completions.parse(
                    model=MODEL,
                    messages=[{"role": "system", "content": TASK}, {"role": "user", "content": letter}],
                    response_format=Sorted,
                )
            return answer.choices[0].message.parsed or Sorted(topic="other", urgent=True)

        return list(await asyncio.gather(*(one(each) for each in letters)))
