from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from app.gateway.reconcile import (
    FIRST_TURN,
    HISTORY_FETCH,
    aligned,
    first_turn,
    read_path,
    repeated,
    repeated_end,
    supplied,
)
from app.store.turns import Recognised, StoredMessage, TurnStore
from tests.support.tables import each_of

SESSION, PARENT, ROOT = UUID(int=100), UUID(int=101), UUID(int=102)


def message(number: int, role: str = "", /, **given: Any) -> StoredMessage:
    """Message `number` of a conversation in which the user has the odd ones."""
    plain: dict[str, Any] = {
        "message_id": UUID(int=number),
        "parent_message_id": UUID(int=number - 1) if number > 1 else None,
        "turn_index": number,
        "sibling": 0,
        "role": role or ("user" if number % 2 else "assistant"),
        "content": f"m{number}",
        "message_hash": b"%d" % number,
    }
    return StoredMessage(**plain | given)


class Shelf:
    """A store that holds these messages by session."""

    def __init__(self, sessions: dict[UUID, list[StoredMessage]]) -> None:
        self.sessions = sessions
        self.asked: list[tuple[list[tuple[UUID, int]], int]] = []

    async def session_messages(
        self, tenant: UUID, user: UUID, line: Sequence[tuple[UUID, int]], *, limit: int
    ) -> list[StoredMessage]:
        self.asked.append((list(line), limit))
        found: list[StoredMessage] = []
        for session, before in line:
            rows = [each for each in self.sessions.get(session, []) if each.turn_index < before]
            found += sorted(rows, key=lambda each: (-each.turn_index, -each.sibling))[:limit]
        return found[:limit]


async def read(shelf: Shelf, last: int, **found: Any) -> tuple[list[int], bool]:
    known = Recognised("named", SESSION, True, tip_turn_index=last, **found)
    path, complete = await read_path(cast(TurnStore, shelf), UUID(int=1), UUID(int=2), known, UUID(int=last))
    return [each.message_id.int for each in path], complete


async def test_a_short_session_is_read_whole() -> None:
    shelf = Shelf({SESSION: [message(n) for n in range(1, 7)]})
    assert await read(shelf, 6) == ([1, 2, 3, 4, 5, 6], True)
    assert len(shelf.asked) == 1


async def test_only_what_led_there_is_on_the_path() -> None:
    other = message(40, turn_index=4, sibling=1, parent_message_id=UUID(int=3))
    shelf = Shelf({SESSION: [message(n) for n in range(1, 5)] + [other]})
    assert await read(shelf, 4) == ([1, 2, 3, 4], True)
    known = Recognised("named", SESSION, True, tip_turn_index=4)
    path, _ = await read_path(cast(TurnStore, shelf), UUID(int=1), UUID(int=2), known, UUID(int=40))
    assert [each.message_id.int for each in path] == [1, 2, 3, 40]


async def test_a_branch_goes_on_in_its_ancestors() -> None:
    shelf = Shelf(
        {
            SESSION: [message(5), message(6)],
            PARENT: [message(n) for n in (3, 4)] + [message(50, turn_index=5)],
            ROOT: [message(n) for n in (1, 2)] + [message(30, turn_index=3)],
        }
    )
    assert await read(shelf, 6, ancestors=((PARENT, 4), (ROOT, 2))) == ([1, 2, 3, 4, 5, 6], True)
    assert shelf.asked[0][0] == [(SESSION, 7), (PARENT, 5), (ROOT, 3)]


async def test_of_a_long_session_the_first_turn_and_the_last_ones_are_kept() -> None:
    count = HISTORY_FETCH + 51
    shelf = Shelf({SESSION: [message(n) for n in range(1, count + 1)]})
    path, complete = await read(shelf, count)
    assert not complete
    assert path[:2] == [1, 2]
    assert path[2:] == list(range(53, count + 1)), "the rest begins with a question"


def test_a_first_turn_holds_its_tool_calls_and_results() -> None:
    rows = [message(1), message(2), message(3, "tool"), message(4), message(5)]
    assert [each.message_id.int for each in first_turn(rows[::-1], ())] == [1, 2, 3, 4]
    assert first_turn(rows[:4][::-1], ()) == [], "its end is not known"
    assert first_turn(rows[::-1], {UUID(int=2)}) == []
    assert FIRST_TURN > 4


def test_what_a_client_says_again_is_found_at_the_end_of_the_path() -> None:
    path = [message(n) for n in range(1, 6)]
    assert repeated(path, [b"4", b"5", b"6"]) == 2
    assert repeated(path, [b"1", b"2", b"3", b"4", b"5"]) == 5
    assert repeated(path, [b"6"]) == 0
    assert repeated([], [b"1"]) == 0
    assert repeated_end(path, [b"x", b"5"]) == 1
    assert repeated_end(path, [b"4", b"5"]) == 2
    assert repeated_end(path, []) == 0


@each_of(
    ("hashes", "found"),
    [
        ([b"3", b"4", b"x"], (2, 4)),
        ([b"1", b"2"], (2, 2)),
        ([b"x", b"4"], (0, 0)),
        ([], (0, 0)),
        ([b"5", b"6"], (1, 5)),
    ],
)
def test_a_transcript_is_laid_over_the_path(hashes: list[bytes], found: tuple[int, int]) -> None:
    assert aligned([message(n) for n in range(1, 6)], hashes) == found


def test_of_two_places_the_later_counts() -> None:
    path = [message(1, message_hash=b"yes"), message(2), message(3, message_hash=b"yes")]
    assert aligned(path, [b"yes"]) == (1, 3)


# --- what is supplied ---------------------------------------------------------------------------------------------------

CALLS = [{"id": "a", "type": "function"}, {"id": "b", "type": "function"}]


def results(*names: str, begin: int = 3) -> list[StoredMessage]:
    return [message(begin + n, "tool", tool_call_id=name) for n, name in enumerate(names)]


def test_calls_and_all_their_results_stay_together() -> None:
    path = [message(1), message(2, tool_calls=CALLS), *results("a", "b"), message(5, "assistant")]
    assert supplied(path, []) == path


@each_of("kept", [("a",), ("b",), ()])
def test_calls_without_all_their_results_go_with_them(kept: tuple[str, ...]) -> None:
    path = [message(1), message(2, content=None, tool_calls=CALLS), *results(*kept), message(5, "user")]
    assert [each.turn_index for each in supplied(path, [])] == [1, 5]
    text = [message(1), message(2, tool_calls=CALLS), *results(*kept), message(5, "user")]
    shown = supplied(text, [])
    assert [each.turn_index for each in shown] == [1, 2, 5]
    assert shown[1].tool_calls is None


def test_results_may_come_with_the_request() -> None:
    path = [message(1), message(2, tool_calls=CALLS), *results("a")]
    following = [{"role": "system"}, {"role": "tool", "tool_call_id": "b"}, {"role": "user"}]
    assert supplied(path, following) == path
    assert supplied(path, [{"role": "user"}, {"role": "tool", "tool_call_id": "b"}]) != path


def test_results_without_their_call_are_left_out() -> None:
    assert [each.turn_index for each in supplied([*results("a", begin=1), message(3), message(4)], [])] == [3, 4]
    assert [each.turn_index for each in supplied([message(1), *results("a", begin=2), message(4)], [])] == [1, 4]


def test_the_old_form_has_no_ids() -> None:
    call = message(2, content=None, tool_calls=[{"type": "function", "function": {}}])
    path = [message(1), call, message(3, "function", name="f")]
    assert supplied(path, []) == path
    assert supplied(path[:2], [{"role": "function"}]) == path[:2]
    assert supplied(path[:2], [{"role": "user"}]) == path[:1]


def test_what_is_hidden_is_not_shown() -> None:
    path = [message(1), message(2, hidden=True), message(3)]
    assert supplied(path, []) == [path[0], path[2]]
    hidden_result = [
        message(1),
        message(2, content=None, tool_calls=CALLS),
        *results("a"),
        message(4, "tool", hidden=True, tool_call_id="b"),
    ]
    assert supplied(hidden_result, []) == hidden_result[:1]
