"""How many examples a property is tried with. The profile `quick` is the default; `make test-all` takes `large`."""

from __future__ import annotations

from hypothesis import settings

QUICK, LARGE = "quick", "large"
QUICK_EXAMPLES = 25
"""Enough to break a property that is wrong in general. Always the same ones, so `make test` has no luck in it."""
LARGE_EXAMPLES = 100
"""Hypothesis's own default; other ones each time."""


def register_profiles() -> None:
    """Examples have no time limit of their own: the machine may be busy, and pytest-timeout holds for the test."""
    settings.register_profile(QUICK, deadline=None, max_examples=QUICK_EXAMPLES, derandomize=True)
    settings.register_profile(LARGE, deadline=None, max_examples=LARGE_EXAMPLES, print_blob=True)
    settings.load_profile(QUICK)


def examples(many: int) -> settings:
    """For a property whose examples cost more, or whose faults are rarer, than usual: `many` in the large profile, and in the
    quick one as many as there usually are, or fewer."""
    return settings(max_examples=many if settings.get_current_profile_name() == LARGE else min(many, QUICK_EXAMPLES))
