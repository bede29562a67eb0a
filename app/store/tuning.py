"""The parameters of `system_config`: what each may be. Checked when a server or a worker starts, for SQL reads them without
looking: a value that is missing or wrong would make a sweep do nothing, or everything, and say so nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import isfinite
from typing import Any

import orjson
from msgspec import Struct

from app.errors import NotReady
from app.store.pools import Pool
from app.store.queries import Queries


class Number(Struct, frozen=True):
    """A number from `least` on (`above`: not it itself), at most `most`; `whole`: an integer."""

    least: float = 0.0
    most: float | None = None
    above: bool = False
    whole: bool = False

    def wrong(self, value: object) -> str | None:
        """What is wrong with a value, if anything is."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return f"{_shown(value)} is no number"
        if self.whole and not isinstance(value, int):
            return f"{_shown(value)} is no integer"
        if value < self.least or (self.above and value == self.least):
            return f"{_shown(value)} is {'not above' if self.above else 'less than'} {self.least:g}"
        if self.most is not None and value > self.most:
            return f"{_shown(value)} is more than {self.most:g}"
        return None


SHARE = Number(most=1)
_AMOUNT = Number()
_POSITIVE = Number(above=True)
COUNT = Number(whole=True)
_ONE_OR_MORE = Number(least=1, whole=True)

_PROMOTION: Mapping[str, Number] = {"discount": _AMOUNT, "threshold": _AMOUNT, "min_access": COUNT}
_FLOOR: Mapping[str, Number] = {"uses": _AMOUNT, "days": _POSITIVE}
PARAMETERS: Mapping[str, Number | Mapping[str, Number]] = {
    "dedup_threshold": SHARE,
    "l1_ttl_hours": _POSITIVE,
    "l2_ttl_days": _POSITIVE,
    "promotion_l1_l2": _PROMOTION,
    "promotion_l2_l3": _PROMOTION,
    "promotion_l2_l4": _PROMOTION,
    "promotion_sources": _ONE_OR_MORE,
    "activity_floor_l2": _FLOOR,
    "activity_floor_l3": _FLOOR,
    "activity_floor_l4": _FLOOR,
    "demotion_grace_days": _AMOUNT,
    "decay_parameters": {"default_rate_per_day": _AMOUNT, "validation_threshold_days": _AMOUNT},
    "aging": {"below": SHARE, "statements": _ONE_OR_MORE},
    "validation": {"gain": SHARE, "cap": SHARE, "correction": SHARE, "ask_again_days": _POSITIVE},
    "importance_decay": {
        "rate": _AMOUNT,
        "hours": _POSITIVE,
        "after_days": _AMOUNT,
        "step": Number(most=1, above=True),
    },
    "prune": {"below": SHARE, "idle_days": _AMOUNT},
    "removal_days": _AMOUNT,
    "confidence": dict.fromkeys(
        ("fact", "preference", "correction", "boost_1", "boost_2", "boost_3", "boost_more", "most"), SHARE
    ),
    "consolidation": {
        "sessions": _ONE_OR_MORE,
        "episodes": _ONE_OR_MORE,
        "facts": _ONE_OR_MORE,
        "gain": SHARE,
        "most": SHARE,
    },
    "resolution": {
        **dict.fromkeys(
            ("exact", "alias", "fuzzy", "fuzzy_span", "coreference", "choice", "domain_key", "domain_name"), SHARE
        ),
        "alias_gain": Number(least=1),
        "alias_most": SHARE,
    },
    "outcome_boost": SHARE,
    "retrieval_limits": dict.fromkeys(("vector", "entity", "time", "recent", "summary"), COUNT),
}
"""Each key, and what its value, or each part of it, may be. (`retrieval_strategy_weights`: `app.context.score.strategies`.)"""


def wrong_with(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with the parameters, each as a line; none: nothing."""
    return [
        line for key, shape in PARAMETERS.items() for line in _wrong(f"system_config.{key}", shape, values.get(key))
    ]


def _wrong(name: str, shape: Number | Mapping[str, Number], value: Any) -> list[str]:
    if value is None:
        return [f"{name} is missing"]
    if isinstance(shape, Number):
        told = shape.wrong(value)
        return [f"{name}: {told}"] if told else []
    if not isinstance(value, Mapping):
        return [f"{name}: {_shown(value)} is no object of {', '.join(shape)}"]
    unknown = [f"{name}.{part} is none of {', '.join(shape)}" for part in value if part not in shape]
    return [line for part, each in shape.items() for line in _wrong(f"{name}.{part}", each, value.get(part))] + unknown


def _shown(value: object) -> str:
    return orjson.dumps(value).decode()


async def parameters_of(connection: Any, sql: Queries) -> dict[str, Any]:
    """Their values."""
    rows = await connection.fetch(sql["tuning.parameters"], list(PARAMETERS))
    return {row["key"]: orjson.loads(row["value"]) for row in rows}


async def lives(connection: Any, sql: Queries) -> dict[int, timedelta]:
    """How long a new memory lives, by tier (seed 000 §5.1); L3 and L4 have no end."""
    row = await connection.fetchrow(sql["tuning.lives"])
    return {1: timedelta(hours=row["l1_hours"]), 2: timedelta(days=row["l2_days"])}


async def check_parameters(pool: Pool, sql: Queries) -> dict[str, Any]:
    """The values, where all are right. Raises NotReady that names every parameter that is wrong; StoreUnavailable."""
    async with pool.acquire() as connection:
        values = await parameters_of(connection, sql)
    if wrong := wrong_with(values):
        told = "; ".join(wrong)
        raise NotReady(f"{told}. Set it right as mneme_owner (docs/reference/system-config.md), and start again.")
    return values
