"""The messages of an export, and those that the user said in shared spaces, as `mneme import` sends them: so that what
`mneme export` wrote can be read back.

Everything else in it is made of them anew (memories, facts, indexes), or belongs to the Mneme that it came from (calls, keys).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from app.errors import MnemeError
from app.features.transfer.store import IN_SPACES, said_line
from app.store.records import ROLES
from app.store.texts import content_of

HEAD = b'{"export":'
END = b'{"end":'
STILL_SAID = ("superseded", "resent")
"""Why something may be suppressed that was said all the same."""
KEPT = ("name", "tool_calls", "tool_call_id")


class BrokenExport(MnemeError):
    """This export cannot be read."""


class _Place(NamedTuple):
    """Of a message: where it stands in its session, and its line in the file."""

    session: str
    turn_index: int
    sibling: int
    message_id: str
    at: int
    size: int


class Exported:
    """An export that is whole. `left_out`: rows by table that are no messages."""

    def __init__(self, file: Path) -> None:
        """Raises BrokenExport."""
        self._file = file
        self._user = ""
        self._sessions: dict[str, str] = {}
        self._shared: list[tuple[int, int]] = []
        self.left_out = Counter[str]()
        self._places = self._read()

    @classmethod
    def is_one(cls, file: Path) -> bool:
        """Whether a file begins as an export does."""
        with file.open("rb") as lines:
            return lines.read(len(HEAD)) == HEAD

    def __len__(self) -> int:
        return len(self._places) + len(self._shared)

    def lines(self) -> Iterator[bytes]:
        """The messages, each session in its order; not what was forgotten, nor what was not to be found."""
        with self._file.open("rb") as file:
            for place in self._places:
                file.seek(place.at)
                yield self._line(orjson.loads(file.read(place.size))["row"])
            for at, size in self._shared:
                file.seek(at)
                said = said_line(orjson.loads(file.read(size))["row"], self._user)
                yield orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)

    def _line(self, row: dict[str, Any]) -> bytes:
        session = str(row["session_id"])
        line = {
            "session": self._sessions.get(session) or session,
            "user": self._user,
            "role": row["role"],
            "content": content_of(row["content"], row["content_parts"]),
            "created_at": row["created_at"],
            "metadata": row["metadata"],
        }
        line |= {name: row[name] for name in KEPT if row.get(name)}
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    def _read(self) -> list[_Place]:
        found: list[_Place] = []
        gone: set[str] = set()
        at, line = 0, b""
        try:
            with self._file.open("rb") as lines:
                for line in lines:
                    self._take(orjson.loads(line), at, len(line), found, gone)
                    at += len(line)
        except (ValueError, LookupError, TypeError) as error:
            raise BrokenExport(f"{self._file}, at byte {at}: this is no line of an export ({error}).") from error
        if not line.startswith(END):
            raise BrokenExport(f"{self._file} broke off: its last line is missing. Export the user again.")
        return sorted(each for each in found if each.message_id not in gone)

    def _take(self, told: dict[str, Any], at: int, size: int, found: list[_Place], gone: set[str]) -> None:
        if "export" in told:
            self._user = told["export"]["user"]
            return
        if "end" in told:
            return
        table, row = told["table"], told["row"]
        if table == "sessions":
            self._sessions[row["session_id"]] = row["external_id"] or ""
        elif table == "suppressions" and row["reason"] not in STILL_SAID:
            gone.add(row["item_id"])
        if table == IN_SPACES and row["kind"] == "message":
            self._shared.append((at, size))
        elif table != "conversation_history":
            self.left_out[table] += 1
        elif row["role"] in ROLES and not row["hidden"]:
            place = (row["session_id"], row["turn_index"], row["sibling"], row["message_id"])
            found.append(_Place(*place, at, size))
