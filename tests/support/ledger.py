"""What clients have seen the end of, on disk; and whether the database says the same.

A call is acknowledged when its client saw the whole answer: `data: [DONE]`, or the last byte of a body. The ledger is
written, and fsynced, by the client after that; so whatever stands in it must stand in the database, once.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.capture.facts import Outcome
from tests.support.clients import MODEL, Message, assistant, user
from tests.support.database import connected
from tests.support.replies import Reply, Script, chat_script
from tests.support.rows import read_calls, read_rows, read_sessions, read_streams
from tests.support.sockets import RawClient, RawResponse

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
ASKED = re.compile(r"question (\S+?)\?")


@dataclass(frozen=True)
class Entry:
    """One acknowledged call. `conversation`: what the client takes for one; `turn`: counted from 0 in it."""

    call: str
    user: str
    conversation: str
    turn: int
    question: str
    answer: str
    stream: bool
    body: str
    """Of the answer, in base64."""


class Ledger:
    """A file of entries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open for as long as the ledger is

    def note(self, entry: Entry) -> None:
        """Durable when this returns."""
        self._file.write(json.dumps(asdict(entry)).encode() + b"\n")
        os.fsync(self._file.fileno())

    @property
    def entries(self) -> list[Entry]:
        return [Entry(**json.loads(line)) for line in self._path.read_bytes().splitlines()]

    def close(self) -> None:
        self._file.close()


# --- the client ---------------------------------------------------------------------------------------------------------


def scripted(answer: Callable[[str], Sequence[str] | Reply] | None = None) -> Script:
    """An upstream that answers "question X?" with "answer X, as asked."; `answer`, given X, may say otherwise."""

    return chat_script(lambda asked: (answer or pieces_of)(name_of(asked)))


def name_of(asked: dict[str, Any]) -> str:
    """The X of the last question in a request, which memory may stand before."""
    return str(ASKED.findall(str(asked["messages"][-1]["content"]))[-1])


def pieces_of(name: str) -> list[str]:
    return ["answer ", name, ", as ", "asked."]


class Talker:
    """A client that keeps its own transcript, asks one question after another, and notes what it saw the end of.

    What was not acknowledged is not in the transcript; ask again, or something else.
    """

    def __init__(self, ledger: Ledger, who: str, *, stream: bool = True) -> None:
        self.who = who
        self.conversation = who
        self.transcript: list[Message] = []
        self.unacknowledged = 0
        self._ledger = ledger
        self._stream = stream
        self._turn = 0

    def body(self, name: str) -> bytes:
        messages = [*self.transcript, user(f"question {name}?")]
        return json.dumps({"model": MODEL, "messages": messages, "stream": self._stream}).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", b"application/json"), (b"x-mneme-user", self.who.encode())]

    async def ask(self, port: int, name: str) -> RawResponse | None:
        """Ask, and read what comes. None: not even a head came."""
        try:
            async with RawClient(port) as client:
                await client.send("POST", CHAT, self.headers, self.body(name))
                answer = await client.response("POST")
        except (OSError, EOFError, TimeoutError):
            self.unacknowledged += 1
            return None
        self.take(name, answer)
        return answer

    def take(self, name: str, answer: RawResponse) -> bool:
        """Note an answer if it is acknowledged."""
        if not acknowledged(answer, stream=self._stream):
            self.unacknowledged += 1
            return False
        text = "".join(pieces_of(name))
        entry = Entry(
            call=answer.header("x-mneme-call-id") or "",
            user=self.who,
            conversation=self.conversation,
            turn=self._turn,
            question=f"question {name}?",
            answer=text,
            stream=self._stream,
            body=base64.b64encode(answer.body).decode(),
        )
        self._ledger.note(entry)
        self._turn += 1
        self.transcript += [user(entry.question), assistant(text)]
        return True


def acknowledged(answer: RawResponse, *, stream: bool) -> bool:
    """Whether the client saw the end of a good answer."""
    if answer.status != 200:
        return False
    return DONE in answer.body if stream else answer.ended == "whole"


# --- the comparison -------------------------------------------------------------------------------------------------------

USER, ASSISTANT = 1, 2

_ByCall = Mapping[str, list[dict[str, Any]]]


async def differences(ledger: Ledger, dsn: str, *, whole: Sequence[str] = ()) -> list[str]:
    """What the ledger and the database disagree about, in words; empty: nothing lost, nothing doubled, all as it was seen.

    `whole`: conversations of which every call was acknowledged; of each there must be one session, its turns in order.
    """
    entries = ledger.entries
    async with connected(dsn) as admin:
        calls = await read_calls(admin)
        bodies = {row["call_id"]: row["body"] for row in await read_streams(admin)}
        messages = await read_rows(admin, "conversation_history", "session_id, turn_index, sibling")
        parents = {row["session_id"]: row["parent_session_id"] for row in await read_sessions(admin)}
    by_call: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in calls:
        by_call[str(row["call_id"])].append(row | {"body": bodies.get(row["call_id"])})
    said: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in messages:
        said[str(row["call_id"])].append(row | {"parent": parents.get(row["session_id"])})
    messages = [row for rows in said.values() for row in rows]
    found = [line for entry in entries for line in _of_one(entry, by_call[entry.call], said[entry.call])]
    found += [f"call {call} is there {len(rows)} times" for call, rows in by_call.items() if len(rows) > 1]
    held: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        held[entry.conversation].append(entry)
    for conversation in whole:
        found += _of_conversation(held[conversation], by_call, messages)
    return found


def _of_one(entry: Entry, calls: list[dict[str, Any]], said: list[dict[str, Any]]) -> list[str]:
    name = f"call {entry.call} ({entry.question[:80]!r} of {entry.conversation})"
    if not calls:
        return [f"{name} was acknowledged and is lost"]
    found = []
    call = calls[0]
    if call["outcome"] != Outcome.COMPLETE or call["status"] != 200:
        found.append(f"{name} was seen whole and is there with outcome {call['outcome']}, status {call['status']}")
    if call["body"] != base64.b64decode(entry.body):
        found.append(f"{name} has another body: {call['body']!r:.200}")
    questions = [row["content"] for row in said if row["role"] == USER]
    answers = [row["content"] for row in said if row["role"] == ASSISTANT]
    if questions[-1:] != [entry.question] and call["session_id"] is not None:
        found.append(f"{name} has the questions {_short(questions)}")
    if answers != [entry.answer]:
        found.append(f"{name} has the answers {_short(answers)}, the client saw {entry.answer[:80]!r}")
    return found


def _of_conversation(own: Sequence[Entry], calls: _ByCall, messages: Sequence[dict[str, Any]]) -> list[str]:
    name = f"conversation {own[0].conversation}"
    sessions = {call["session_id"] for entry in own for call in calls[entry.call]}
    if len(sessions) != 1:
        return [f"{name} of {len(own)} turns is in the sessions {sessions}"]
    held = [text for entry in sorted(own, key=lambda e: e.turn) for text in (entry.question, entry.answer)]
    stored = [row["content"] for row in messages if row["session_id"] in sessions]
    found = [] if stored == held else [f"{name} was\n  {_short(held)}\nand is there as\n  {_short(stored)}"]
    if any(row["parent"] is not None for row in messages if row["session_id"] in sessions):
        found.append(f"{name} is a branch of another session")
    return found


def _short(texts: Sequence[str | None]) -> list[str | None]:
    return [text if text is None else text[:80] for text in texts]
