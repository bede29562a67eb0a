"""`make bench`: every measurement in turn, each in a process of its own.

python -m loadtests [--quick] [--only NAME]… [--peers]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console

from loadtests.results import NAMES, Name
from loadtests.sections import ABOUT
from loadtests.terminal import console, measuring


def commands(names: Sequence[Name], *, quick: bool, peers: bool) -> dict[Name, list[str]]:
    """Of each measurement: what runs it."""
    found: dict[Name, list[str]] = {}
    for name in names:
        found[name] = [sys.executable, "-m", f"loadtests.{name}"]
        found[name] += ["--quick"] if quick else []
        found[name] += ["--peers"] if peers and name == "bench" else []
    return found


def left(names: Sequence[Name], *, quick: bool) -> str:
    """How long they take, in words."""
    minutes = sum(ABOUT[name].quick if quick else ABOUT[name].minutes for name in names)
    return f"some {minutes:.0f} minutes"


def run(out: Console, wanted: dict[Name, list[str]], *, quick: bool) -> list[Name]:
    """Run them all, whatever becomes of one; those that failed."""
    failed: list[Name] = []
    for n, (name, command) in enumerate(wanted.items()):
        rest = left(list(wanted)[n:], quick=quick)
        out.rule(f"{n + 1} of {len(wanted)}: {ABOUT[name].title} ({name}); {rest} to go")
        began = time.monotonic()
        if code := ended(command):
            failed.append(name)
            out.print(f"{name} ended with {code} after {time.monotonic() - began:.0f} s")
    return failed


def ended(command: Sequence[str]) -> int:
    """Run one; its exit code. In a session of its own: Ctrl-C is told to it once, by us, so that it ends what it started."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


@click.command()
@click.option("--quick", is_flag=True, help="For the shape only.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="These alone; may be given several times.")
@click.option(
    "--peers", is_flag=True, help="LiteLLM and Portkey, too, in `bench`; they are installed into ~/.cache/mneme-peers."
)
def main(quick: bool, only: tuple[Name, ...], peers: bool) -> None:
    """Run all measurements, and make docs/generated/benchmarks.md."""
    out = console()
    names = [name for name in NAMES if name in only or not only]
    with measuring():
        failed = run(out, commands(names, quick=quick, peers=peers), quick=quick)
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
