"""Takes every package out of this environment that a distribution does not need to run, pip last of all.

    python prune.py mneme-proxy

What is needed is what its metadata asks for here (markers decided for this machine, no extras but those that are asked for).
"""

import importlib.metadata
import subprocess
import sys

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(root: str) -> set[str]:
    """The canonical names of `root` and all that it stands on."""
    found: set[tuple[str, str]] = set()
    todo = [(canonicalize_name(root), "")]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for text in importlib.metadata.distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                dependency = canonicalize_name(requirement.name)
                todo += [(dependency, each) for each in ("", *requirement.extras)]
    return {name for name, _ in found}


def main() -> None:
    keep = needed(sys.argv[1])
    there = {canonicalize_name(each.name) for each in importlib.metadata.distributions()}
    going = sorted(there - keep - {"pip"})
    # Names from the environment's own metadata, no shell.
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", *going, "pip"], check=True)  # noqa: S603
    print(f"{len(there & keep)} packages stay, {len(going) + 1} are gone")


if __name__ == "__main__":
    main()
