"""What an installation without the limits of keys does with keys that have some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import Forbidden
from app.gateway.call import Admits
from app.store.tenancy import KeyLimits


def call_with(limits: KeyLimits | None) -> Any:
    return SimpleNamespace(principal=SimpleNamespace(limits=limits))


@pytest.mark.parametrize("limits", [None, KeyLimits(capture=False), KeyLimits(paging=True)])
async def test_who_has_no_limits_is_let_in(limits: KeyLimits | None) -> None:
    call = call_with(limits)
    async with Admits().admitted(call, None) as let_in:
        assert let_in is call


@pytest.mark.parametrize(
    "given", [{"requests_per_minute": 5}, {"token_budget": 9}, {"money_budget": 0}, {"models": ("m",)}]
)
async def test_who_has_some_stays_out(given: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match=r"no app\.features\.limits") as refused:
        async with Admits().admitted(call_with(KeyLimits(**given)), None):
            pytest.fail("it was let in")
    assert refused.value.code == "limits_not_held"
