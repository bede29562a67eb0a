"""The arithmetic of limits: what a call may come to, how a refusal reads, what is told of what is left. Plain functions.

Refusals have OpenAI's shape, so that its SDKs raise RateLimitError and wait for as long as they are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from app.capture.facts import CallFacts
from app.errors import RateLimited
from app.gateway.headers import Headers
from app.store.limits import MICROCENTS_PER_DOLLAR, Estimate, Limits, Standing

BYTES_PER_TOKEN = 4
"""Of English text: OpenAI's rule of thumb. Its own limits guess from the length, too: nobody tokenises before they admit."""

MAX_CHOICES = 128
"""Largest `n` of the chat API; what is more is refused by the upstream."""

ANSWER_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Where the paths under /v1 say how long an answer may be."""

MAX_ANSWER = 10_000_000
"""Tokens of one answer that are believed: more than any model writes, and sums of it stay within Postgres' bigint."""

WINDOW_SLOTS = 61
"""Slots of a second that a rate looks at: the present one and the 60 full ones before it (`sql/schema/010_limits.sql`)."""

MAX_RETRY_S = 60.0
"""Longest wait that a rate tells, seconds: OpenAI's SDKs took more for no wait at all, until they took up to two minutes."""


class Admission(Struct):
    """A call that its key's limits let in, and what it came to: is told of it as that is known. `slot`: what settles it; None:
    the database was away, and nothing is to be settled. `headers`: what is told of what is left."""

    headers: Headers
    slot: int | None
    asked: bool = False
    """An upstream was."""
    facts: CallFacts | None = None
    """What it came to, when it has ended."""
    recorded: bool = False
    """Something of it is kept."""


def estimate(
    document: Mapping[str, Any] | None,
    size: int,
    *,
    reserve: Callable[[str], int],
    cost: Callable[[str, int, int], int],
) -> Estimate:
    """What a request of `size` bytes may come to; nothing where its body is not understood.

    The rate counts the prompt and the answer's limit, if the client names one (as OpenAI's does); a budget counts what a model
    may answer (`reserve`, tokens) where none is named, too. `cost` gives micro-cents for a model's prompt and answer.
    """
    if document is None:
        return Estimate()
    prompt = math.ceil(size / BYTES_PER_TOKEN)
    name = document.get("model")
    model = name if isinstance(name, str) else ""
    named = next((found for each in ANSWER_FIELDS if (found := _count(document.get(each), MAX_ANSWER))), 0)
    choices = _count(document.get("n"), MAX_CHOICES) or 1
    answer = (named or reserve(model)) * choices
    return Estimate(prompt + named * choices, prompt + answer, cost(model, prompt, answer))


def _count(value: object, most: int) -> int:
    """A number of a request's, 0 where it is none: whether it is a mistake is the upstream's to say."""
    return min(value, most) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# --- what is told -----------------------------------------------------------------------------------------------------


def rate_headers(limits: Limits, standing: Standing) -> Headers:
    """OpenAI's `x-ratelimit-…` headers, for the rates that the key has."""
    told: dict[str, str] = {}
    for kind, limit, left, reset in (
        ("requests", limits.requests_per_minute, standing.requests_left, standing.requests_reset_s),
        ("tokens", limits.tokens_per_minute, standing.tokens_left, standing.tokens_reset_s),
    ):
        if limit is not None:
            told[f"x-ratelimit-limit-{kind}"] = str(limit)
            told[f"x-ratelimit-remaining-{kind}"] = str(left or 0)
            told[f"x-ratelimit-reset-{kind}"] = duration(reset or 0.0)
    return [(name.encode(), value.encode()) for name, value in told.items()]


def refusal(limits: Limits, standing: Standing, wanted: Estimate) -> RateLimited:
    """The 429 for what `standing` refused."""
    headers, wait = rate_headers(limits, standing), standing.wait_s
    if standing.refused in ("token_budget", "money_budget"):
        return _over_budget(limits, standing, headers)
    wait = min(max(wait or 0.0, 0.001), MAX_RETRY_S)
    headers += [
        (b"retry-after", str(math.ceil(wait)).encode()),
        (b"retry-after-ms", str(math.ceil(wait * 1000)).encode()),
    ]
    if standing.refused == "requests":
        kind, said = "requests", f"requests per min (RPM): Limit {limits.requests_per_minute}"
    else:
        kind = "tokens"
        said = f"tokens per min (TPM): Limit {limits.tokens_per_minute}, Requested {wanted.rate_tokens}"
    message = f"Rate limit reached for this key on {said}. Please try again in {duration(wait)}."
    return RateLimited(message, kind=kind, code="rate_limit_exceeded", headers=headers)


def _over_budget(limits: Limits, standing: Standing, headers: Headers) -> RateLimited:
    """Not to be tried again soon, and OpenAI's SDKs are told so: they would, after any 429."""
    headers.append((b"x-should-retry", b"false"))
    if standing.wait_s is not None:
        headers.append((b"retry-after", str(max(math.ceil(standing.wait_s), 1)).encode()))
    if standing.refused == "token_budget":
        period, budget = limits.token_period, f"{limits.token_budget} tokens"
    else:
        period, budget = limits.money_period, f"${dollars(limits.money_budget or 0)}"
    per = "" if period == "ever" else f" per {period}"
    message = f"You exceeded the budget of this key ({budget}{per}), with what is still being answered."
    return RateLimited(message, kind="insufficient_quota", code="insufficient_quota", headers=headers)


def dollars(microcents: int) -> str:
    """Micro-cents as US dollars, with as many places as there are, at least two: 150000000 → 1.50."""
    whole, rest = divmod(microcents, MICROCENTS_PER_DOLLAR)
    return f"{whole}.{f'{rest:08d}'.rstrip('0').ljust(2, '0')}"


def duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 8.64s, 6m0s, 1h0m5s."""
    milliseconds = math.ceil(round(seconds * 1000, 3))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    said = f"{rest / 1000:g}s"
    return f"{hours}h{minutes}m{said}" if hours else f"{minutes}m{said}" if minutes else said


# --- while the database is away ---------------------------------------------------------------------------------------


class Window:
    """The rates of one key in this process alone: the same slots as in the database."""

    def __init__(self) -> None:
        self._slots: dict[int, list[int]] = {}

    def admit(self, limits: Limits, rate_tokens: int, now_s: float) -> Standing:
        """As `admit_call`, of the rates. `now_s`: seconds since 1970."""
        second = int(now_s)
        self._slots = {at: used for at, used in self._slots.items() if second - WINDOW_SLOTS < at <= second}
        need = min(rate_tokens, limits.tokens_per_minute or 0)
        refused, wait = None, 0.0
        for name, place, limit, more in (
            ("requests", 0, limits.requests_per_minute, 1),
            ("tokens", 1, limits.tokens_per_minute, need),
        ):
            if refused is None and limit is not None and (wait := self._wait(place, limit - more, now_s)) > 0:
                refused = name
        if refused is None:
            slot = self._slots.setdefault(second, [0, 0])
            slot[0], slot[1] = slot[0] + 1, slot[1] + need
        left = [
            None if limit is None else max(limit - sum(used[place] for used in self._slots.values()), 0)
            for place, limit in enumerate((limits.requests_per_minute, limits.tokens_per_minute))
        ]
        return Standing(refused, wait, second, left[0], self._wait(0, 0, now_s), left[1], self._wait(1, 0, now_s))

    def _wait(self, place: int, room: int, now_s: float) -> float:
        """Seconds until the slots hold no more than `room`."""
        used = sum(each[place] for each in self._slots.values())
        wait = 0.0
        for at in sorted(self._slots):
            if used <= room:
                break
            used -= self._slots[at][place]
            wait = at + WINDOW_SLOTS - now_s
        return wait
