"""What a key may use, as it is stored with it. What holds it to that is `features/limits`."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from app.errors import BadRequest
from app.sources import PRICE_NAMES, Price

Period = Literal["day", "month", "ever"]
"""Of a budget: a day or a month of the calendar in UTC, or for good."""
PERIODS: tuple[str, ...] = get_args(Period)
USUAL_PERIOD: Period = "month"
By = Literal["key", "user", "session", "model", "day"]
"""What is added up of what was spent."""
GROUPS: tuple[str, ...] = get_args(By)
MICROCENTS_PER_DOLLAR = 100_000_000
"""Seed 000 §2.1: cost is counted in 10⁻⁸ US dollars."""
MAX_COUNT = 10**15
"""Largest number of a limit: beyond what anybody uses, and a sum of thousands of them still fits into Postgres' bigint."""
MAX_DOLLARS = 10_000_000
"""Largest budget: `MAX_COUNT` in US dollars."""
MAX_MODELS = 100
MAX_PATTERN_CHARS = 200


class KeyLimits(Struct, frozen=True):
    """What a key may use; None: any amount. `money_budget` in micro-cents. `models`: names, or patterns with `*`; none: any.
    `capture`: whether its calls may be captured. `paging`: whether they are paged, where call and session do not say; `price`:
    what a token of memory costs, where the call does not say (`context/worth.py`); neither limits anything."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    token_budget: int | None = None
    token_period: Period = USUAL_PERIOD
    money_budget: int | None = None
    money_period: Period = USUAL_PERIOD
    models: tuple[str, ...] = ()
    capture: bool = True
    paging: bool | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        """Raises BadRequest for a number out of range, a period or a pattern that is none."""
        for name, least in (
            ("requests_per_minute", 1),
            ("tokens_per_minute", 1),
            ("token_budget", 0),
            ("money_budget", 0),
        ):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and least <= value <= MAX_COUNT):
                raise BadRequest(f"{name} is a whole number from {least} to {MAX_COUNT}.", param=name)
        for name in ("token_period", "money_period"):
            if getattr(self, name) not in PERIODS:
                raise BadRequest(f"{name} is {', '.join(PERIODS[:-1])} or {PERIODS[-1]}.", param=name)
        if self.price not in (None, *PRICE_NAMES):
            raise BadRequest(f"price is {', '.join(PRICE_NAMES[:-1])} or {PRICE_NAMES[-1]}.", param="price")
        if len(self.models) > MAX_MODELS or not all(
            isinstance(each, str) and 0 < len(each) <= MAX_PATTERN_CHARS and "\0" not in each for each in self.models
        ):
            raise BadRequest(
                f"models are at most {MAX_MODELS} names or patterns of 1 to {MAX_PATTERN_CHARS} characters.",
                param="models",
            )

    @property
    def rated(self) -> bool:
        """Whether there is a rate."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def budgeted(self) -> bool:
        """Whether there is a budget."""
        return self.token_budget is not None or self.money_budget is not None

    @property
    def held(self) -> bool:
        """Whether its calls have to be let in, each by itself (`features/limits`)."""
        return self.rated or self.budgeted or bool(self.models)

    @property
    def limiting(self) -> bool:
        """Whether anything is kept from the key: a choice of its owner's is no limit."""
        return replace(self, paging=None, price=None) != NO_LIMITS

    def allows(self, model: str | None) -> bool:
        """Whether this model may be called; None: nobody can tell which it is."""
        return not self.models or (model is not None and any(fnmatchcase(model, each) for each in self.models))

    def as_json(self) -> dict[str, Any]:
        """What is stored and shown: only what was set."""
        plain = asdict(NO_LIMITS)
        found = {name: value for name, value in asdict(self).items() if value != plain[name]}
        if "models" in found:
            found["models"] = list(self.models)
        return found

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> KeyLimits | None:
        """The limits as they were stored; None where there are none. What a later version added is not looked at."""
        known = {name: value for name, value in stored.items() if name in cls.__struct_fields__}
        if "models" in known:
            known["models"] = tuple(known["models"])
        found = cls(**known)
        return found if found != NO_LIMITS else None

    def changed(self, change: Mapping[str, Any]) -> KeyLimits:
        """With what `change` names. Raises BadRequest."""
        return replace(self, **change)


NO_LIMITS = KeyLimits()


def microcents(dollars: str | int | float | Decimal) -> int:
    """US dollars as micro-cents, rounded down. Raises BadRequest for what is no amount of money from 0 to `MAX_DOLLARS`."""
    try:
        amount = Decimal(str(dollars))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MAX_DOLLARS:
        raise BadRequest(f"A budget is an amount of US dollars from 0 to {MAX_DOLLARS}.", param="money_budget")
    return int(amount * MICROCENTS_PER_DOLLAR)
