"""The core's one way to what may not be there: a feature, by its name alone."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from app.errors import NotReady


@cache
def imported(name: str) -> ModuleType | None:
    """A feature's package, or a module in it (`ui.site`); None: it is not there, or only what Python compiled is left of it."""
    path = f"app.features.{name}"
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        return None
    left_over = hasattr(module, "__path__") and getattr(module, "__file__", None) is None
    return None if left_over else module


def needed(name: str, asked: str) -> ModuleType:
    """As `imported`, where `asked`, a setting, needs it. Raises NotReady."""
    if (module := imported(name)) is None:
        raise NotReady(f"{asked}: this installation has no app.features.{name.partition('.')[0]}.")
    return module
