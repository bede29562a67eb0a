"""The two locks: what serving takes, and the same with what developing takes besides."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins(name: str) -> set[str]:
    """The lock's entries, each with its version, marker and hashes."""
    joined = (ROOT / name).read_text().replace("\\\n", " ")
    return {" ".join(line.split()) for line in joined.splitlines()}


def names(lock: set[str]) -> set[str]:
    return {canonicalize_name(Requirement(each.partition("--hash=")[0]).name) for each in lock}


RUN, DEV = pins("requirements.lock"), pins("requirements-dev.lock")


def test_the_developers_lock_holds_the_other() -> None:
    assert RUN < DEV, RUN - DEV


def test_every_pin_is_a_version_with_hashes() -> None:
    for each in RUN | DEV:
        assert "==" in each.split()[0], each
        assert "--hash=sha256:" in each, each


def test_the_lock_to_run_is_whole_and_has_nothing_that_only_developers_need() -> None:
    """Pip is told not to resolve it: what is missing there would be missed when it is imported."""
    needed = runpy.run_path(str(ROOT / "deploy" / "image" / "prune.py"))["needed"]
    assert needed("mneme-proxy") | needed("hatchling") <= names(RUN) | {"mneme-proxy"}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    developing = {canonicalize_name(Requirement(each).name) for each in groups["dev"] if isinstance(each, str)}
    assert developing
    assert not developing & names(RUN)
    assert developing <= names(DEV)
