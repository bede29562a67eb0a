"""app/store/tuning.py: what parameters of `system_config` may be, and that the page tells each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

from app.store.tuning import PARAMETERS, Number, wrong_with
from tests.support.tables import each_of

ROOT = Path(__file__).parents[3]
SCHEMA = "".join(path.read_text() for path in sorted((ROOT / "sql" / "schema").glob("*.sql")))
PAGE = (ROOT / "docs" / "reference" / "system-config.md").read_text()


def shipped() -> dict[str, Any]:
    """The values that the schema begins with."""
    found = re.findall(r"\(\'([a-z0-9_]+)\', *\'([0-9{][^']*)\',", SCHEMA)
    return {key: orjson.loads(value) for key, value in found if key in PARAMETERS}


def test_what_is_shipped_is_right_and_told() -> None:
    assert set(shipped()) == set(PARAMETERS)
    assert wrong_with(shipped()) == []
    for key, shape in PARAMETERS.items():
        value = shipped()[key]
        parts = [key] if isinstance(shape, Number) else [f"{key}.{part}" for part in shape]
        for part in parts:
            told = value if isinstance(shape, Number) else value[part.split(".")[1]]
            assert f"| `{part}` | {told} |" in PAGE, part


@each_of(
    ("key", "value", "told"),
    [
        ("l2_ttl_days", "ninety", 'system_config.l2_ttl_days: "ninety" is no number'),
        ("l2_ttl_days", 0, "system_config.l2_ttl_days: 0 is not above 0"),
        ("l2_ttl_days", None, "system_config.l2_ttl_days is missing"),
        ("l2_ttl_days", True, "system_config.l2_ttl_days: true is no number"),
        ("dedup_threshold", 92, "system_config.dedup_threshold: 92 is more than 1"),
        ("promotion_sources", 1.5, "system_config.promotion_sources: 1.5 is no integer"),
        ("prune", 3, "system_config.prune: 3 is no object of below, idle_days"),
        ("prune", {"below": -1, "idle_days": 3}, "system_config.prune.below: -1 is less than 0"),
        ("prune", {"below": 0.1}, "system_config.prune.idle_days is missing"),
        ("prune", {"below": 0.1, "idle_days": 3, "idle": 4}, "system_config.prune.idle is none of below, idle_days"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: Any, told: str) -> None:
    assert wrong_with(shipped() | {key: value}) == [told]
