"""The spool: durable before it says so, bounded, in order, and for several processes."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.errors import NotReady, SpoolUnavailable
from app.features.spool.frames import CallBegin, FrameCodec, SpooledCall
from app.features.spool.spool import Spool, SpoolUsage, erasing, look, open_spool

ANA, BEN = UUID(int=1), UUID(int=2)
MUCH = 1 << 20


def call(user: UUID = ANA, at_us: int = 1, body: bytes = b"body") -> SpooledCall:
    return SpooledCall(uuid4(), CallBegin(user, at_us, b"notes", body), b"head", [(3, b"chunk")], b"end", size=5)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return open_spool(tmp_path / "spool", MUCH)


def test_calls_wait_in_the_order_in_which_they_came(spool: Spool) -> None:
    late, early, other = call(at_us=10**15), call(at_us=9), call(BEN)
    assert spool.store([late, early, other]) == [None, None, None]
    assert sorted(spool.users()) == [ANA, BEN]
    assert spool.behind(ANA)
    found = spool.turns(ANA)
    assert [each.call for each in found] == [early.call, late.call]
    assert [spool.load(each) for each in found] == [early, late]
    assert not spool.leave(ANA), "somebody waits"
    for each in found:
        spool.remove(each)
        spool.remove(each)
    assert spool.behind(ANA), "until the folder is gone"
    assert spool.leave(ANA)
    assert not spool.behind(ANA)
    assert spool.turns(ANA) == []


def test_a_call_that_waits_already_stays_as_it_is(spool: Spool) -> None:
    first = call()
    again = SpooledCall(first.call, first.begin)
    assert spool.store([first]) == spool.store([again]) == [None]
    (found,) = spool.turns(ANA)
    assert spool.load(found) == first


def test_it_is_synced_before_it_is_said_to_be_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file's bytes before it takes its place, then its folder, then the folder of folders."""
    steps: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.rename

    def synced(fd: int) -> None:
        steps.append(("sync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))
        fsync(fd)

    def renamed(path: Path, target: Any) -> Path:
        steps.append(("place", path.name))
        return rename(path, target)

    spool = open_spool(tmp_path / "spool", MUCH)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    one, two = call(at_us=1), call(at_us=2)
    assert spool.store([one, two]) == [None, None]
    names = [each.path.name for each in spool.turns(ANA)]
    assert sorted(steps[:2]) == sorted(("sync", each) for each in names)
    assert sorted(steps[2:4]) == sorted(("place", each) for each in names)
    assert steps[4:] == [("sync", ANA.hex), ("sync", "turns")], "each folder once, for all that belong together"


@pytest.mark.parametrize("failing", ["fsync", "writev"])
def test_a_disk_that_does_not_take_it_is_no_success(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, full)
    (error,) = spool.store([call()])
    assert isinstance(error, OSError)
    assert not spool.turns(ANA)
    assert look(spool.folder).size == 0, "and nothing of it is left"


def test_it_is_bounded(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "spool", 1000)
    errors = spool.store([call(at_us=n, body=b"x" * 400) for n in range(3)])
    assert errors[0] is None
    assert [type(each) for each in errors[-1:]] == [SpoolUnavailable]
    kept = errors.count(None)
    assert len(spool.turns(ANA)) == kept
    spool.remove(spool.turns(ANA)[0])
    assert spool.store([call(at_us=9, body=b"x" * 400)]) == [None], "there is room again"
    again = open_spool(tmp_path / "spool", 1000)
    assert isinstance(again.store([call(body=b"x" * 400)])[0], SpoolUnavailable), (
        "what lies there counts from the start"
    )


def test_what_is_set_aside_is_out_of_the_way(spool: Spool) -> None:
    spool.store([call()])
    (waiting,) = spool.turns(ANA)
    spool.bury(waiting)
    assert spool.turns(ANA) == []
    assert spool.leave(ANA)
    used = look(spool.folder)
    assert (used.dead, used.calls) == (1, 0)
    assert used.size > 0


def test_a_user_is_erased(spool: Spool) -> None:
    spool.store([call(at_us=1), call(at_us=2), call(BEN)])
    spool.bury(spool.turns(ANA)[0])
    assert spool.erase(ANA) == 2
    assert spool.erase(ANA) == 0
    assert not spool.behind(ANA)
    assert not list(spool.folder.rglob(f"*{ANA.hex}*"))
    assert len(spool.turns(BEN)) == 1


def test_what_was_being_written_when_a_process_died_is_erased_too(spool: Spool) -> None:
    def left(user: UUID, *, age_s: float, torn: bool = False) -> Path:
        kept = call(user)
        path = spool.folder / "new" / f"{1:020d}-{kept.call.hex}"
        data = b"".join(FrameCodec(path.name.encode()).encode_call(kept))
        path.write_bytes(data[:30] if torn else data)
        os.utime(path, (time.time() - age_s,) * 2)
        return path

    old, torn = left(ANA, age_s=100), left(ANA, age_s=100, torn=True)
    new, bens = left(ANA, age_s=0), left(BEN, age_s=100)
    spool.erase(ANA)
    assert [each.exists() for each in (old, torn, new, bens)] == [False, False, True, True]


async def test_a_spool_that_is_not_there_or_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await erasing(tmp_path / "none")(UUID(int=9), ANA) == {"spool": 0}
    assert not (tmp_path / "none").exists()
    spool = open_spool(tmp_path / "spool", MUCH)
    spool.store([call()])

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(NotReady, match="not yours"):
        await erasing(spool.folder)(UUID(int=9), ANA)


def test_a_file_that_is_no_call_any_more(spool: Spool) -> None:
    spool.store([call()])
    (waiting,) = spool.turns(ANA)
    waiting.path.write_bytes(b"\0" * 100)
    assert spool.load(waiting) is None


def test_one_process_drains(spool: Spool) -> None:
    with spool.draining() as first, Spool(spool.folder, MUCH).draining() as second:
        assert (first, second) == (True, False)
    with spool.draining() as again:
        assert again


def test_what_it_holds(spool: Spool, tmp_path: Path) -> None:
    assert look(tmp_path / "nowhere") == SpoolUsage()
    spool.store([call(at_us=1), call(BEN)])
    (spool.folder / "turns" / "notes.txt").write_text("somebody's own")
    used = spool.usage()
    assert (used.calls, used.users) == (2, 2)
    assert used.oldest > 10**9
    assert sorted(spool.users()) == [ANA, BEN]
    assert spool.folder.stat().st_mode & 0o077 == 0, "nobody else reads it"
