"""Whether a call is captured: the sample, and who has it switched off. The turn is kept either way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

RANDOM_BITS = 62
"""Last bits of a uuid of version 7: random ones (RFC 9562), so that they draw the sample, and draw it again the same."""


@dataclass(frozen=True, slots=True)
class CapturePolicy:
    """`sample`: the share of calls captured, 0 to 1; `off`: tenants whose calls never are."""

    sample: float = 1.0
    off: Collection[UUID] = ()

    def wants(self, call: UUID, tenant: UUID) -> bool:
        """Whether this call is to be captured."""
        drawn: int = call.int & ((1 << RANDOM_BITS) - 1)
        return tenant not in self.off and drawn < self.sample * (1 << RANDOM_BITS)
