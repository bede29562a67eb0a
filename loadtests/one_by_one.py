"""Runs `mneme` with objects degraded one by one instead of in batches, to compare with.

python -m loadtests.one_by_one serve
"""

from __future__ import annotations

from app.features.paging import fidelity
from app.features.paging.fidelity import BORDERS
from app.features.paging.values import Zone

TARGET, LEAST = BORDERS[Zone.WARNING], 0.0
"""No lower than the border that was passed, however little that frees."""

if __name__ == "__main__":
    fidelity.TARGET, fidelity.MIN_BATCH = TARGET, LEAST
    from app.cli import main

    main()
