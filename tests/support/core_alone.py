"""`python -m tests.support.core_alone …`: the command `mneme`, in an installation without a single feature."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from app import optional


class NoFeatures(MetaPathFinder):
    """No module of `app.features` is found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("app.features."):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


if __name__ == "__main__":
    for name in [each for each in sys.modules if each.startswith(("app.features.", "app.cli"))]:
        del sys.modules[name]
    optional.imported.cache_clear()
    optional.FEATURES = optional.FEATURES / "__none__"
    sys.meta_path.insert(0, NoFeatures())
    runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
