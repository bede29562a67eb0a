"""The journal of running calls: written as it comes, let go when it is done, found when its process is dead."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.features.spool import spool
from app.features.spool.journal import CallBegin, KeptCall
from app.features.spool.spool import SUFFIX, Journal, JournalEntry, abandoned, calls_in

USER = UUID(int=7)


def begun(journal: Journal, call: UUID | None = None, body: bytes = b"body") -> JournalEntry:
    entry = journal.begin(call or uuid4(), CallBegin(USER, 1, b"notes", body))
    assert entry is not None
    return entry


def made(folder: Path, segment_bytes: int = 1 << 20) -> tuple[Journal, list[str]]:
    failures: list[str] = []
    return Journal(folder, segment_bytes, lambda: failures.append("failed")), failures


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def left_by_the_dead(folder: Path) -> list[KeptCall]:
    """As another process finds it when this one is dead: the files without their locks."""
    dead = folder / "dead"
    dead.mkdir(exist_ok=True)
    for each in segments(folder):
        (dead / each.name).write_bytes(each.read_bytes())
    return [kept for each in abandoned(dead) for kept in calls_in(each) if not kept.done]


def test_each_step_is_in_the_file_at_once(tmp_path: Path) -> None:
    journal, _ = made(tmp_path)
    call = uuid4()
    entry = begun(journal, call)
    (found,) = left_by_the_dead(tmp_path)
    assert (found.call, found.begin) == (call, CallBegin(USER, 1, b"notes", b"body"))
    entry.head(b"head")
    entry.chunk(5, b"one")
    entry.chunk(9, b"two")
    (found,) = left_by_the_dead(tmp_path)
    assert (found.head, found.chunks) == (b"head", [(5, b"one"), (9, b"two")])
    entry.done()
    entry.done()
    entry.chunk(11, b"late")
    assert left_by_the_dead(tmp_path) == []


def test_who_lives_is_left_alone(tmp_path: Path) -> None:
    journal, _ = made(tmp_path)
    begun(journal)
    assert list(abandoned(tmp_path)) == []


def test_a_large_segment_is_followed_by_another_and_goes_with_its_last_call(tmp_path: Path) -> None:
    journal, _ = made(tmp_path, segment_bytes=100)
    first = begun(journal, body=b"x" * 200)
    second = begun(journal)
    assert len(segments(tmp_path)) == 2
    second.done()
    first.chunk(1, b"still here")
    assert len(segments(tmp_path)) == 2
    first.done()
    assert len(segments(tmp_path)) == 1
    journal.close()
    assert segments(tmp_path) == []


def test_a_quiet_segment_is_written_over_and_emptied(tmp_path: Path) -> None:
    journal, _ = made(tmp_path)
    (large,) = [begun(journal, body=b"x" * 500)]
    other = begun(journal, body=b"y" * 100)
    large.done()
    other.done()
    (path,) = segments(tmp_path)
    size = path.stat().st_size
    call = uuid4()
    again = begun(journal, call)
    assert path.stat().st_size == size, "over what was there"
    assert [each.call for each in left_by_the_dead(tmp_path)] == [call], "what is left of the others is no call"
    journal.tidy()
    assert path.stat().st_size == size, "somebody runs"
    again.done()
    assert left_by_the_dead(tmp_path) == []
    journal.tidy()
    assert path.stat().st_size == 0


def test_a_segment_that_is_never_quiet_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = made(tmp_path)
    begun(journal)
    journal.tidy()
    begun(journal)
    assert len(segments(tmp_path)) == 1
    monkeypatch.setattr(spool, "SEGMENT_LIFE_S", -1.0)
    journal.tidy()
    begun(journal)
    assert len(segments(tmp_path)) == 2


def test_a_disk_that_is_full_fails_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, failures = made(tmp_path)
    entry = begun(journal)
    write = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    entry.chunk(1, b"lost")
    entry.chunk(2, b"lost too")
    assert failures == ["failed"]
    monkeypatch.setattr(os, "pwrite", write)
    entry.chunk(3, b"not again: there would be a hole")
    begun(journal)
    assert [each.chunks for each in left_by_the_dead(tmp_path)] == [[], []]


def test_a_folder_that_is_not_there_fails_no_call(tmp_path: Path) -> None:
    journal, failures = made(tmp_path / "nowhere")
    assert journal.begin(uuid4(), CallBegin(USER, 1, b"")) is None
    assert failures == ["failed"]


def test_a_frame_that_was_written_in_part_is_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = made(tmp_path)
    write, calls = os.pwrite, []

    def in_part(fd: int, data: Any, at: int) -> int:
        calls.append(at)
        return write(fd, (b"".join(data) if isinstance(data, list) else bytes(data))[:10], at)

    monkeypatch.setattr(os, "pwritev", in_part)
    monkeypatch.setattr(os, "pwrite", in_part)
    entry = begun(journal)
    entry.chunk(3, b"a chunk")
    assert len(calls) > 8
    (found,) = left_by_the_dead(tmp_path)
    assert (found.begin.body, found.chunks) == (b"body", [(3, b"a chunk")])


def test_an_empty_file_is_taken_away_when_it_is_old(tmp_path: Path) -> None:
    young, old = tmp_path / f"young{SUFFIX}", tmp_path / f"old{SUFFIX}"
    for each in (young, old):
        each.touch()
    os.utime(old, (1, 1))
    for left in abandoned(tmp_path):
        left.unlink()
    assert segments(tmp_path) == [young]
