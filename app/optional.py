"""The core's one way to what may not be there: a feature, by its name alone."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from app.errors import NotReady

FEATURES = Path(__file__).with_name("features")
"""The folder that has them."""


def is_there(name: str) -> bool:
    """Whether a feature, or a module in it (`ui.site`), is installed; not if only what Python compiled is left of it. It is not
    loaded, and neither is what all features have."""
    *folders, last = name.split(".")
    spec = PathFinder.find_spec(last, [str(FEATURES.joinpath(*folders))])
    return spec is not None and spec.origin is not None


@cache
def imported(name: str) -> ModuleType | None:
    """The module; None: it is not there."""
    return import_module(f"app.features.{name}") if is_there(name) else None


def require(name: str, asked: str) -> None:
    """Raises NotReady where a feature is not there that `asked`, a setting, needs."""
    if not is_there(name):
        raise NotReady(f"{asked}: this installation has no app.features.{name.partition('.')[0]}.")


def needed(name: str, asked: str) -> ModuleType:
    """As `imported`. Raises NotReady, as `require`."""
    require(name, asked)
    return import_module(f"app.features.{name}")
