"""A deck: cassettes to be played, each request taking the one that was recorded for it. Pure, and safe among threads."""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, get_args

from mneme_replay.cassette import Cassette
from mneme_replay.nearest import Nearest
from mneme_replay.requests import Asked, Reader, asked_of

Reuse = Literal["once", "again"]
REUSES: tuple[str, ...] = get_args(Reuse)

MOST_LINES = 120
"""Lines of a difference that are told."""


@dataclass(frozen=True, slots=True)
class Miss:
    """No cassette answers. `why` in a sentence or two; `nearest`, and how the request differs from it, line by line."""

    asked: Asked
    why: str
    nearest: Cassette | None = None
    difference: str = ""

    @property
    def told(self) -> str:
        """All of it, for a person."""
        return self.why + (f"\n\n{self.difference}" if self.difference else "")


class Deck:
    """Cassettes in the order in which they were recorded.

    Equal requests get their cassettes in that order: `once` each, or, with `again`, the last of them from then on; by sequence,
    `again` begins anew.
    """

    def __init__(self, cassettes: Iterable[Cassette], reader: Reader | None = None, reuse: Reuse = "again") -> None:
        self.reader = reader or Reader()
        self.misses: list[Miss] = []
        """Requests that found none, so far."""
        self._reuse = reuse
        self._lock = Lock()
        self._cassettes: list[Cassette] = []
        self._plays: list[int] = []
        self._places: dict[tuple[tuple[str, ...], bytes], _Places] = defaultdict(_Places)
        self._redactions: dict[tuple[str, ...], None] = {}
        self._next = 0
        self._near: dict[tuple[str, str, tuple[str, ...]], Nearest] = defaultdict(Nearest)
        self._compared = 0
        """How many of them `_near` knows: it is made when something is missed first."""
        for each in cassettes:
            self.add(each)

    def add(self, cassette: Cassette) -> None:
        """One more, behind the others."""
        redactions = tuple(cassette.redacted)
        key = self.reader.key(asked_of(cassette), redactions)
        with self._lock:
            self._redactions.setdefault(redactions)
            self._places[redactions, key].all.append(len(self._cassettes))
            self._cassettes.append(cassette)
            self._plays.append(0)

    @property
    def cassettes(self) -> Sequence[Cassette]:
        """All of them."""
        return tuple(self._cassettes)

    def __len__(self) -> int:
        return len(self._cassettes)

    @property
    def unplayed(self) -> Sequence[Cassette]:
        """Those that no request asked for yet."""
        with self._lock:
            return tuple(each for each, plays in zip(self._cassettes, self._plays, strict=True) if not plays)

    @property
    def plays(self) -> int:
        """How many requests were answered."""
        return sum(self._plays)

    def find(self, asked: Asked) -> Cassette | None:
        """The cassette of a request, which counts as played; None: there is none."""
        found = self._take(asked)
        return found if isinstance(found, Cassette) else None

    def play(self, asked: Asked) -> Cassette | Miss:
        """As `find`; a miss is explained, and kept in `misses`."""
        found = self._take(asked)
        if isinstance(found, Cassette):
            return found
        miss = self._miss(asked, found)
        self.misses.append(miss)
        return miss

    def _take(self, asked: Asked) -> Cassette | list[int]:
        with self._lock:
            place = self._in_turn(asked) if self.reader.matching == "sequence" else self._matching(asked)
            if not isinstance(place, int):
                return place
            self._plays[place] += 1
            return self._cassettes[place]

    def _matching(self, asked: Asked) -> int | list[int]:
        """The place of the cassette, or those that would fit and are used up."""
        found = [
            places
            for redactions in self._redactions
            if (places := self._places.get((redactions, self.reader.key(asked, redactions)))) is not None
        ]
        fresh = min((each for each in found if each.played < len(each.all)), key=lambda each: each.next, default=None)
        if fresh is not None:
            fresh.played += 1
            return fresh.all[fresh.played - 1]
        if found and self._reuse == "again":
            return max(each.all[-1] for each in found)
        return sorted(place for each in found for place in each.all)

    def _in_turn(self, asked: Asked) -> int | list[int]:
        if self._next >= len(self._cassettes) and self._reuse == "again":
            self._next = 0
        if self._next >= len(self._cassettes):
            return []
        expected = self._cassettes[self._next]
        if self.reader.target(asked) != self.reader.target(asked_of(expected)):
            return []
        self._next += 1
        return self._next - 1

    # --- what to say when there is none -------------------------------------------------------------------------------

    def _miss(self, asked: Asked, used: list[int]) -> Miss:
        target = self.reader.target(asked)
        if not self._cassettes:
            return Miss(asked, f"No cassette answers {target}: there are none.")
        if used:
            last = self._cassettes[used[-1]]
            times = "once" if len(used) == 1 else f"{len(used)} times"
            return Miss(asked, f"{target} was recorded {times}, and has been played as often (last {last.name}).", last)
        if self.reader.matching == "sequence":
            return self._out_of_turn(asked, target)
        near = self._nearest(asked)
        if near is None:
            told = ", ".join(sorted({self.reader.target(asked_of(each)) for each in self._cassettes})[:5])
            return Miss(asked, f"No cassette answers {target}. There are some for {told}.")
        why = f"No cassette answers {target} (by {self.reader.matching} body). The nearest is {near.name}; the request differs:"
        return Miss(asked, why, near, self.difference(near, asked))

    def _out_of_turn(self, asked: Asked, target: str) -> Miss:
        if self._next >= len(self._cassettes):
            return Miss(asked, f"No cassette is left for {target}: all {len(self._cassettes)} were played.")
        expected = self._cassettes[self._next]
        turn = f"number {self._next + 1}, {expected.name}, answers {self.reader.target(asked_of(expected))}"
        return Miss(asked, f"{target} is out of turn: {turn}.", expected)

    def _nearest(self, asked: Asked) -> Cassette | None:
        """The one with the most in common, of those for the same path; among equals, the first that was not played."""
        with self._lock:
            for place in range(self._compared, len(self._cassettes)):
                recorded = asked_of(self._cassettes[place])
                redactions = tuple(self._cassettes[place].redacted)
                self._near[*_route(recorded), redactions].add(place, self.reader.text(recorded, redactions))
            self._compared = len(self._cassettes)
            best: tuple[float, bool, int] | None = None
            for redactions in self._redactions:
                near = self._near.get((*_route(asked), redactions))
                for share, place in near.to(self.reader.text(asked, redactions)) if near is not None else ():
                    found = (share, not self._plays[place], -place)
                    best = found if best is None or found > best else best
        return self._cassettes[-best[2]] if best is not None else None

    def difference(self, cassette: Cassette, asked: Asked) -> str:
        """How a request differs from that of a cassette, as a unified difference of what counts of the two."""
        reader, recorded = self.reader, asked_of(cassette)
        before = _lines(reader.target(recorded), reader.text(recorded, cassette.redacted))
        after = _lines(reader.target(asked), reader.text(asked, cassette.redacted))
        if before == after and reader.matching == "strict":
            return _bytes_differ(recorded.body, asked.body)
        lines = list(difflib.unified_diff(before, after, cassette.name or cassette.id, "the request", lineterm=""))
        more = len(lines) - MOST_LINES
        return "\n".join(lines[:MOST_LINES] + ([f"… and {more} lines more"] if more > 0 else []))


class _Places:
    """The places of equal cassettes, in order, and how many of them were played."""

    __slots__ = ("all", "played")

    def __init__(self) -> None:
        self.all: list[int] = []
        self.played = 0

    @property
    def next(self) -> int:
        """The first that was not played, while there is one."""
        return self.all[self.played]


def _route(asked: Asked) -> tuple[str, str]:
    """The method and the path, without its query."""
    return asked.method.upper(), asked.path.partition("?")[0]


def _lines(target: str, text: str) -> list[str]:
    """Lines to be read: JSON's escapes are undone, and a text of several lines stands in several."""
    lines = [target]
    for line in text.splitlines():
        shown = line
        if "\\" in line:
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            shown = _readable(line).replace("\n", "\n" + indent)
        lines += shown.split("\n")
    return lines


def _readable(line: str) -> str:
    """The line with the escapes of its last string undone, where it ends with one."""
    start = line.find('"', line.find('": ') + 2 if '": ' in line else 0)
    end = line.rfind('"')
    try:
        return line[: start + 1] + str(json.loads(line[start : end + 1])) + line[end:]
    except ValueError:
        return line


def _bytes_differ(before: bytes, after: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    shown = slice(max(0, at - 20), at + 20)
    return (
        f"The JSON is the same, and its bytes differ from byte {at} on:\n"
        f"- {before[shown]!r}\n+ {after[shown]!r}\nA match by normalised body does not mind."
    )
