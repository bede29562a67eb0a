"""Whether a call is captured: the sample, and who has it switched off. The turn is kept either way."""

from __future__ import annotations

from uuid import UUID

from app.settings import Settings

RANDOM_BITS = 62
"""Last bits of a uuid of version 7: random ones (RFC 9562), so that they draw the sample, and draw it again the same."""


def wanted(settings: Settings, call: UUID, tenant: UUID) -> bool:
    """Whether this call of a tenant is to be captured."""
    drawn: int = call.int & ((1 << RANDOM_BITS) - 1)
    return tenant not in settings.capture_off_tenants and drawn < settings.capture_sample * (1 << RANDOM_BITS)
