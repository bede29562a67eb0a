"""What is known of each model: its context window, how much it may answer, and what it costs.

Three sources, the first that knows wins: the settings (`MNEME_MODEL_WINDOWS`, `MNEME_MODEL_PRICES`), what an upstream
said of itself at run time (vLLM's `max_model_len`), and the table below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")

MICROCENTS_PER_DOLLAR = 100_000_000
"""Seed 000 §2.1 counts cost in micro-cents: 10⁻⁶ of a cent, 10⁻⁸ of a US dollar."""

REASONING_RESERVE = 25_000
"""Tokens kept for the answer of a reasoning model when the client names no limit: OpenAI's guide on reasoning models
advises to reserve at least this many for reasoning and answer together."""

DEFAULT_WINDOW = 8192
"""Context window in tokens of a model that neither the table nor its upstream knows: small enough for any model that is served
today. MNEME_MODEL_WINDOWS names others."""

DEFAULT_RESPONSE_TOKENS = 4096
"""Tokens kept for the answer when the client names no limit (seed 000 §2.1)."""

_DEFAULT_SHARE = 4
"""Without a limit from the client, at most one part in this many of the window is kept for the answer, so that a model
with a small window still has room for a prompt."""

_LONG_PROMPT = 272_000
"""Prompt tokens above which OpenAI charges the long-context rate for the whole request, where a model has one."""
_LONG_PROMPT_FACTOR = Decimal(2)
_LONG_ANSWER_FACTOR = Decimal("1.5")


class Price(Struct, frozen=True):
    """US dollars per million tokens. `long`: the long-context rate of OpenAI applies above `_LONG_PROMPT`."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal | None = None
    long: bool = False


class Model(Struct, frozen=True):
    """One row. Tokens; `window` holds prompt and answer together.

    `split`: prompts above window − longest answer are refused, however short an answer is asked (gpt-5 and later).
    """

    window: int
    max_output: int
    reasoning: bool = False
    split: bool = False
    price: Price | None = None

    @property
    def max_prompt(self) -> int:
        """The longest prompt that is taken."""
        return self.window - self.max_output if self.split else self.window


def _chat(window: int, output: int, prompt: str, completion: str, cached: str | None = None) -> Model:
    return Model(window, output, price=_price(prompt, completion, cached))


def _reasoning(window: int, output: int, prompt: str, completion: str, cached: str) -> Model:
    return Model(window, output, reasoning=True, price=_price(prompt, completion, cached))


def _split(window: int, prompt: str, completion: str, cached: str) -> Model:
    """gpt-5 and later: answers of at most 128,000 tokens; the long-context rate where the window is a million."""
    long = window > 1_000_000
    return Model(window, 128_000, reasoning=True, split=True, price=_price(prompt, completion, cached, long))


def _price(prompt: str, completion: str, cached: str | None = None, long: bool = False) -> Price:
    return Price(Decimal(prompt), Decimal(completion), Decimal(cached) if cached else None, long)


_1M = 1_050_000
MODELS: Mapping[str, Model] = {
    "gpt-6.2-astra": _split(_1M, "8", "40", "0.40"),
    "gpt-6.2-sol": _split(_1M, "2", "10", "0.10"),
    "gpt-6.1-sol": _split(_1M, "2", "10", "0.10"),
    "gpt-6.1-terra": _split(_1M, "1", "5", "0.05"),
    "gpt-6-astra": _split(_1M, "10", "50", "1"),
    "gpt-6-sol": _split(_1M, "2", "10", "0.20"),
    "gpt-6-luna": _split(_1M, "0.10", "0.50", "0.01"),
    "gpt-5.6": _split(_1M, "4", "20", "0.40"),
    "gpt-5.6-sol": _split(_1M, "4", "20", "0.40"),
    "gpt-5.6-terra": _split(_1M, "2", "12", "0.20"),
    "gpt-5.6-luna": _split(_1M, "0.20", "1.20", "0.02"),
    "gpt-5.5": _split(_1M, "5", "30", "0.50"),
    "gpt-5.4": _split(_1M, "2.50", "15", "0.25"),
    "gpt-5.4-mini": _split(400_000, "0.75", "4.50", "0.075"),
    "gpt-5.4-nano": _split(400_000, "0.20", "1.25", "0.02"),
    "gpt-5.2": _split(400_000, "1.75", "14", "0.175"),
    "gpt-5.1": _split(400_000, "1.25", "10", "0.125"),
    "gpt-5": _split(400_000, "1.25", "10", "0.125"),
    "gpt-5-mini": _split(400_000, "0.25", "2", "0.025"),
    "gpt-5-nano": _split(400_000, "0.05", "0.40", "0.005"),
    "gpt-5-chat": _chat(128_000, 16_384, "1.25", "10", "0.125"),
    "gpt-5.1-chat": _chat(128_000, 16_384, "1.25", "10", "0.125"),
    "gpt-5.2-chat": _chat(128_000, 16_384, "1.75", "14", "0.175"),
    "gpt-5.3-chat": _chat(128_000, 16_384, "1.75", "14", "0.175"),
    "gpt-4.1": _chat(1_047_576, 32_768, "2", "8", "0.50"),
    "gpt-4.1-mini": _chat(1_047_576, 32_768, "0.40", "1.60", "0.10"),
    "gpt-4.1-nano": _chat(1_047_576, 32_768, "0.10", "0.40", "0.025"),
    "gpt-4o": _chat(128_000, 16_384, "2.50", "10", "1.25"),
    "gpt-4o-2024-05-13": _chat(128_000, 4096, "5", "15"),
    "gpt-4o-mini": _chat(128_000, 16_384, "0.15", "0.60", "0.075"),
    "gpt-4-turbo": _chat(128_000, 4096, "10", "30"),
    "gpt-4-1106-preview": _chat(128_000, 4096, "10", "30"),
    "gpt-4": _chat(8192, 4096, "30", "60"),
    "gpt-3.5-turbo": _chat(16_385, 4096, "0.50", "1.50"),
    "gpt-3.5-turbo-16k": _chat(16_385, 4096, "3", "4"),
    "o4-mini": _reasoning(200_000, 100_000, "1.10", "4.40", "0.275"),
    "o3": _reasoning(200_000, 100_000, "2", "8", "0.50"),
    "o3-mini": _reasoning(200_000, 100_000, "1.10", "4.40", "0.55"),
    "o1": _reasoning(200_000, 100_000, "15", "60", "7.50"),
    "ft:gpt-4.1": _chat(1_047_576, 32_768, "3", "12", "0.75"),
    "ft:gpt-4.1-mini": _chat(1_047_576, 32_768, "0.80", "3.20", "0.20"),
    "ft:gpt-4.1-nano": _chat(1_047_576, 32_768, "0.20", "0.80", "0.05"),
    "ft:gpt-4o": _chat(128_000, 16_384, "3.75", "15", "1.875"),
    "ft:gpt-4o-mini": _chat(128_000, 16_384, "0.30", "1.20", "0.15"),
    "ft:gpt-3.5-turbo": _chat(16_385, 4096, "3", "6"),
    "text-embedding-3-small": Model(8191, 0, price=_price("0.02", "0")),
    "text-embedding-3-large": Model(8191, 0, price=_price("0.13", "0")),
    "text-embedding-ada-002": Model(8191, 0, price=_price("0.10", "0")),
    # Open weights: what OpenAI published; a server may be configured for less and says so. The price is the host's.
    "gpt-oss-20b": Model(131_072, 131_072),
    "gpt-oss-120b": Model(131_072, 131_072),
    # Members of a family that the rows above do not name: the family's smallest window; no price rather than a guess.
    "gpt-6*": Model(_1M, 128_000, reasoning=True, split=True),
    "gpt-5*": Model(400_000, 128_000, reasoning=True, split=True),
    "gpt-5*-chat*": Model(128_000, 16_384),
    "gpt-4.1*": Model(1_047_576, 32_768),
    "gpt-4o*": Model(128_000, 16_384),
    "gpt-4-*": Model(8192, 4096),
    "gpt-3.5-turbo*": Model(4096, 4096),
    "o1*": Model(128_000, 65_536, reasoning=True),
    "o3*": Model(200_000, 100_000, reasoning=True),
    "o4*": Model(200_000, 100_000, reasoning=True),
    # Anthropic's, by its overview of models: none that is served has less. /v1/messages names the longest answer itself.
    "claude-*": Model(200_000, 32_000),
}

_SNAPSHOT = re.compile(r"(?:-\d{4}-\d{2}-\d{2}|-\d{4}|-latest|-preview)+$")


class ModelRegistry:
    """Answers for any model name, with a vendor's prefix or without (`openai/gpt-4o`)."""

    LEARNED_KEPT = 4096  # names come from upstreams; one that lists more is not believed further

    def __init__(
        self,
        *,
        windows: Mapping[str, int] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
        default_window: int = DEFAULT_WINDOW,
        default_response: int = DEFAULT_RESPONSE_TOKENS,
    ) -> None:
        """`windows` in tokens, `prices` in US$ per million prompt and completion tokens: by name or pattern with `*`.

        `default_window` and `default_response` (tokens) hold for models that nothing knows.
        """
        self._windows = dict(windows or {})
        self._prices = {
            name: Price(Decimal(str(prompt)), Decimal(str(completion)))
            for name, (prompt, completion) in (prices or {}).items()
        }
        self._default_window = default_window
        self._default_response = default_response
        self._learned: dict[str, int] = {}

    def learn(self, model: str, window: int) -> None:
        """Take in what an upstream says of itself (vLLM's `max_model_len` in `/v1/models`)."""
        if window > 0 and (model in self._learned or len(self._learned) < self.LEARNED_KEPT):
            self._learned[model] = window

    def window(self, model: str) -> int:
        """Context window in tokens: prompt and answer together."""
        for told in (_look_up(self._windows, model), self._learned.get(model)):
            if told is not None:
                return told
        known = _row(model)
        return known.window if known else self._default_window

    def response_reserve(self, model: str, requested: int | None) -> int:
        """Tokens of the window to keep for the answer (R of seed 000 §6.1).

        `requested` is the client's own `max_completion_tokens` or `max_tokens`. Never less than what keeps the prompt
        inside a limit of its own, never more than the window.
        """
        window = self.window(model)
        known = _row(model)
        trusted = known if known and known.window == window else None
        if requested is not None and requested > 0:
            reserve = requested
        else:
            usual = REASONING_RESERVE if trusted and trusted.reasoning else self._default_response
            longest = trusted.max_output if trusted and trusted.max_output else usual
            reserve = min(usual, longest, window // _DEFAULT_SHARE)
        floor = window - trusted.max_prompt if trusted else 0
        return min(max(reserve, floor), window)

    def price(self, model: str) -> Price | None:
        """The price, or None when it is not known."""
        configured = _look_up(self._prices, model)
        if configured is not None:
            return configured
        known = _row(model)
        return known.price if known else None

    def cost_microcents(self, model: str, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> int:
        """Cost of one call in micro-cents (10⁻⁸ US$, seed 000 §2.1), 0 when the price is not known.

        `cached_tokens` are those of `prompt_tokens` that the upstream read from its prompt cache.
        """
        price = self.price(model)
        if price is None:
            return 0
        cached = min(max(cached_tokens, 0), prompt_tokens) if price.cached is not None else 0
        prompt = price.prompt * (prompt_tokens - cached) + (price.cached or 0) * cached
        completion = price.completion * completion_tokens
        if price.long and prompt_tokens > _LONG_PROMPT:
            prompt, completion = prompt * _LONG_PROMPT_FACTOR, completion * _LONG_ANSWER_FACTOR
        microcents = (prompt + completion) * MICROCENTS_PER_DOLLAR / 1_000_000
        return int(microcents.to_integral_value(ROUND_HALF_UP))


@lru_cache(maxsize=1024)
def _row(model: str) -> Model | None:
    """The table's row; a fine-tuned model without one is like its base, but for the price."""
    found = _look_up(MODELS, model)
    if found is None and model.startswith("ft:"):
        base = _look_up(MODELS, model.split(":")[1])
        return replace(base, price=None) if base else None
    return found


def _look_up(table: Mapping[str, T], model: str) -> T | None:
    """The row for `model`: its name, else the name without vendor or snapshot date, else the longest pattern."""
    for name in _names(model):
        if (row := table.get(name)) is not None:
            return row
    patterns = [
        pattern for pattern in table if "*" in pattern and any(fnmatchcase(name, pattern) for name in _names(model))
    ]
    return table[max(patterns, key=len)] if patterns else None


def _names(model: str) -> list[str]:
    """`model` as it came, then simpler: `ft:gpt-4o-2024-08-06:acme::x` → `ft:gpt-4o`, `openai/o3-2025-04-16` → `o3`."""
    bare = model.rpartition("/")[2]
    if bare.startswith("ft:"):
        bare = ":".join(bare.split(":")[:2])
    plain = _SNAPSHOT.sub("", bare)
    return [model, bare, plain]
