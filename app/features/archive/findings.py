"""What `mneme doctor` says of archives."""

from __future__ import annotations

from typing import Any

import asyncpg

from app.features import Finding, writable
from app.features.archive.archives import COUNTED, Archives
from app.settings import Settings
from app.store.retention import MB


async def findings(settings: Settings, archives: Archives, connection: asyncpg.Connection[Any]) -> list[Finding]:
    """Files of months that are archived, and what never will be. `connection`: as mneme_owner."""
    known = await archives.known(connection)
    folder = settings.archive_folder.absolute()
    found = []
    if settings.history_days is not None and not writable(folder):
        mend = "Set MNEME_ARCHIVE_DIR to a folder that this user may write to."
        found.append(Finding("error", f"Archives of history cannot be written ({folder}).", mend))
    found += [
        Finding("error", f"The archive {part.file} {wrong} ({folder}).", "Bring it back from a copy of the folder.")
        for part, wrong in known
        if wrong
    ]
    if any(part.state == "detached" for part, _ in known):
        told = "A month of history stands between its table and its archive."
        found.append(Finding("warning", told, "Run `mneme archive run`; the worker does so once a day."))
    beyond = await archives.beyond(connection) if settings.history_days is not None else 0
    if beyond:
        told = f"{beyond if beyond < COUNTED else f'{COUNTED} or more'} messages are of months that have no partition"
        found.append(Finding("warning", f"{told}: they are not archived.", "They were imported; they stay."))
    archived = [part for part, _ in known if part.state == "archived"]
    if archived and not any(each.level == "error" for each in found):
        size = sum(part.size or 0 for part in archived)
        months = len({part.month for part in archived})
        found.append(Finding("ok", f"{months} months of history are archived ({size / MB:,.0f} MB in {folder})."))
    return found
