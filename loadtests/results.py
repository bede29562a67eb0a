"""What measurements leave behind: a JSON file for each run in `loadtests/results/`, from which docs/generated/benchmarks.md
is made."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

Name = Literal["bench", "scale", "wal", "prefix", "replaying", "resolving", "soak"]
NAMES: tuple[Name, ...] = get_args(Name)
"""The measurements, in the order in which `make bench` runs them and the page tells them."""
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("aiohttp", "asyncpg", "httptools", "orjson", "uvicorn", "uvloop")
DIGITS = 4
"""Significant digits that are kept of a figure."""

Document = Mapping[str, Any]
"""A run: `name`, `at` (ISO 8601, UTC), `quick`, `machine`, and what the measurement found."""


def head(name: Name, *, quick: bool, postgres: str) -> dict[str, Any]:
    """What every document begins with. `postgres`: the server's version."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"name": name, "at": at, "quick": quick, "machine": machine(postgres)}


def machine(postgres: str) -> dict[str, str]:
    """What it ran on, without names of machines or people."""
    return {
        "CPU": f"{os.cpu_count()} × {_cpu_model()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "PostgreSQL": postgres,
        **{name: version(name) for name in PACKAGES},
        "Mneme": version("mneme-proxy"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def write(document: Document, folder: Path = RESULTS) -> Path:
    """Keep a run. A second one of a day takes the place of the first; a quick one never that of a full one."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{document['name']}-{document['at'][:10]}{'-quick' if document['quick'] else ''}.json"
    path.write_bytes(as_json(document))
    return path


def latest(folder: Path = RESULTS) -> dict[str, Document]:
    """The run of each measurement that is told: the newest full one, else the newest quick one."""
    found: dict[str, Document] = {}
    for path in folder.glob("*.json"):
        document: Document = orjson.loads(path.read_bytes())
        name = document.get("name")
        if name in NAMES and (name not in found or _weight(document) > _weight(found[name])):
            found[name] = document
    return {name: found[name] for name in NAMES if name in found}


def _weight(document: Document) -> tuple[bool, str]:
    return not document["quick"], document["at"]


def as_json(document: Document) -> bytes:
    """One line a field, and one line an entry of a list, so that two runs can be compared line by line. NaN becomes null."""
    return (
        "{\n" + ",\n".join(f"  {_text(name)}: {_field(value)}" for name, value in document.items()) + "\n}\n"
    ).encode()


def _field(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {_text(each)}" for each in value) + "\n  ]"
    return _text(value)


def _text(value: Any) -> str:
    return orjson.dumps(_rounded(value)).decode()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
    return value
