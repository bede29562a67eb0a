"""Who lets calls in: `features/limits`, or, where that is left out, what keeps no count."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from app.errors import Forbidden
from app.gateway.call import Parsed


class Admits:
    """Lets calls in, each by the limits of its key. Here nothing could hold a key to them: one that has some stays out."""

    @asynccontextmanager
    async def admitted(self, call: Parsed, document: Mapping[str, Any] | None) -> AsyncIterator[Parsed]:
        """The call, let in; settled when it is over, however it ended. `document`: the body, where it is a JSON object. Raises
        what keeps it out."""
        limits = call.principal.limits
        if limits is not None and limits.held:
            raise Forbidden(
                "This key has limits, and this installation has no app.features.limits to hold it to them.",
                code="limits_not_held",
            )
        yield call
