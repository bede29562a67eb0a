"""What `mneme doctor` says of the spool."""

from __future__ import annotations

from collections.abc import Iterator

from app.features import Finding, writable
from app.features.spool.spool import look
from app.settings import Settings

NEARLY_FULL = 0.8
"""Share of the spool's bound from which there is little time left."""


def findings(settings: Settings) -> Iterator[Finding]:
    """See `Feature.findings`."""
    if not settings.spool_max_bytes:
        yield Finding(
            "warning",
            "There is no spool: while Postgres is away, answers do not end.",
            "Set MNEME_SPOOL_MAX_BYTES to more than 0.",
        )
        return
    folder = settings.spool_folder.absolute()
    used = look(folder)
    if not writable(folder):
        yield Finding(
            "error",
            f"The spool cannot be written to ({folder}): while Postgres is away, answers do not end.",
            "Set MNEME_SPOOL_DIR to a folder that this user may write to, or make room there.",
        )
        return
    if used.dead:
        yield Finding(
            "error",
            f"{used.dead} calls could not be stored for what they are; they lie in {folder / 'dead'}.",
            f"The log says why. Move their folders to {folder / 'turns'} to try again, or delete them.",
        )
    if used.size > settings.spool_max_bytes * NEARLY_FULL:
        yield Finding(
            "error",
            f"The spool is nearly full: {used.size >> 20} of {settings.spool_max_bytes >> 20} MiB.",
            "Bring Postgres back, or set MNEME_SPOOL_MAX_BYTES higher: when it is full, answers do not end.",
        )
    if used.calls:
        calls = "1 call waits" if used.calls == 1 else f"{used.calls} calls wait"
        yield Finding(
            "warning",
            f"{calls} in the spool ({used.size >> 10} KiB, the first for {used.oldest:.0f} s).",
            "They are stored by themselves once Postgres takes writes and a server runs.",
        )
    elif not used.dead:
        yield Finding("ok", f"The spool is empty ({folder}).")
