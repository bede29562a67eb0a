"""What the pytest plugin does when a test asks for it: a test's cassettes, and one server for all tests of a process."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from mneme_replay.cassette import Cassette, CassetteError
from mneme_replay.deck import REUSES, Deck, Miss, Reuse
from mneme_replay.files import SUFFIX, add, load, numbered, write
from mneme_replay.player import App, Player, Receive, Send
from mneme_replay.recorder import Recorder
from mneme_replay.redacting import Redaction
from mneme_replay.requests import Asked, Reader
from mneme_replay.serving import Background

if TYPE_CHECKING:
    import respx

    from mneme_replay.plugin import RecordMode

API_KEY = "mneme-replay"
"""What a client needs to have a key at all; no upstream sees it."""
KEY_VARIABLE = "OPENAI_API_KEY"
SETTLE_S = 2.0
"""Seconds that a test which records waits at its end for calls that are still under way."""


class TestCassettes:
    """The cassettes of one test. The first folder is the one that is recorded into.

    record none: only what is there; once: everything, where there is nothing; new: what no cassette answers; all: everything
    anew.
    """

    __test__ = False  # its name is no test's

    def __init__(
        self,
        folders: Sequence[Path],
        record: RecordMode = "none",
        upstream: str = "",
        match: str = "normalised",
        reuse: Reuse = "once",
        speed: float = 0.0,
        ignore: Sequence[str] = (),
        redact: Sequence[str] = (),
        redact_headers: Sequence[str] = (),
        misses: Literal["fail", "allow"] = "fail",
    ) -> None:
        """Raises CassetteError and ValueError."""
        if record not in ("none", "once", "new", "all"):
            raise ValueError(f"A record mode is one of none, once, new, all, not {record!r}.")
        if reuse not in REUSES or misses not in ("fail", "allow"):
            raise ValueError("`reuse` is once or again, `misses` fail or allow.")
        self.folder = folders[0]
        self.speed = speed
        self.upstream = upstream
        found = load([each for each in folders if each.exists()])
        self.recording = record in ("new", "all") or (record == "once" and not found)
        """Whether a request that no cassette answers goes to the upstream."""
        self.deck = Deck([] if record == "all" else found, Reader.of(match, ignore), reuse)
        self._record = record
        self._redaction = Redaction(redact, redact_headers)
        self._misses = misses
        self._recorded: dict[int, Cassette] = {}
        self._lock = Lock()

    @property
    def recorded(self) -> list[Cassette]:
        """What was recorded in this test so far, in the order in which it was asked for."""
        with self._lock:
            return [each for _, each in sorted(self._recorded.items())]

    def add_routes(self, router: respx.Router, base_url: str = "https://api.openai.com/v1") -> respx.Route:
        """Have a respx router answer everything under `base_url` from these cassettes. Nothing is recorded this way."""
        from mneme_replay.routes import add_routes

        return add_routes(router, self.deck, base_url, speed=self.speed)

    def keep(self, number: int, cassette: Cassette) -> None:
        """One more that was recorded."""
        with self._lock:
            self._recorded[number] = cassette

    def finish(self, *, passed: bool) -> str:
        """Write what was recorded, if the test passed; what is to be complained about. Raises CassetteError."""
        recorded = [self._redaction.apply(each) for each in self.recorded]
        if recorded and passed:
            self._write(recorded)
        return self.missed() if passed else ""

    def missed(self) -> str:
        """What no cassette answered, where that is to fail the test."""
        return "\n\n".join(_told(each, self) for each in self.deck.misses) if self._misses == "fail" else ""

    def _write(self, recorded: Sequence[Cassette]) -> None:
        if self._record != "all":
            add(self.folder, recorded)
            return
        fresh = self.folder.with_name(f".{self.folder.name}.{os.getpid()}")
        try:
            write(fresh, numbered(recorded))
            for file in self.folder.glob(f"*{SUFFIX}") if self.folder.is_dir() else ():
                file.unlink()
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in fresh.iterdir():
                file.replace(self.folder / file.name)
        except OSError as error:
            raise CassetteError(f"{self.folder} cannot be written: {error.strerror}.") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _told(miss: Miss, cassettes: TestCassettes) -> str:
    hint = "pytest --mneme-record=new records what is missing"
    return f"{miss.told}\n\n{cassettes.folder}: {hint}; @pytest.mark.mneme(misses='allow') lets the test pass."


class Replay:
    """What a test sees of its server."""

    def __init__(self, base_url: str, cassettes: TestCassettes) -> None:
        self.base_url = base_url
        """For `OpenAI(base_url=…)`."""
        self.cassettes = cassettes

    @property
    def api_key(self) -> str:
        """For `OpenAI(api_key=…)`: the real one where there is something to record."""
        return os.environ.get(KEY_VARIABLE, API_KEY) if self.cassettes.recording else API_KEY

    @property
    def recording(self) -> bool:
        """Whether a request that no cassette answers goes to the upstream."""
        return self.cassettes.recording

    @property
    def recorded(self) -> list[Cassette]:
        """What was recorded so far."""
        return self.cassettes.recorded

    @property
    def unplayed(self) -> Sequence[Cassette]:
        """Cassettes that nothing asked for yet."""
        return self.cassettes.deck.unplayed

    @property
    def plays(self) -> int:
        """How many requests cassettes have answered."""
        return self.cassettes.deck.plays


class _Either:
    """Answers from the deck what it has, and records the rest."""

    def __init__(self, player: Player, recorder: Recorder) -> None:
        self._player = player
        self._recorder = recorder

    async def answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        found = self._player.deck.find(asked)
        if found is not None:
            await self._player.play(found, receive, send)
        else:
            await self._recorder.answer(asked, receive, send)


class Server:
    """One server for the tests of a process, each under a path of its own. Use as a context manager."""

    def __init__(self) -> None:
        self._app = App()
        self._background: Any = Background(self._app)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Server:
        self._background.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.__exit__(kind, error, trace)

    @contextmanager
    def serving(self, cassettes: TestCassettes) -> Iterator[Replay]:
        """Answer under a path of its own as long as the test runs; what asks there afterwards gets an error."""
        name = f"test-{next(self._numbers)}"
        player = Player(cassettes.deck, speed=cassettes.speed)
        recorder = Recorder(cassettes.upstream, cassettes.keep)
        self._app.mount(name, _Either(player, recorder) if cassettes.recording else player)
        try:
            yield Replay(f"{self._background.url}/{name}/v1", cassettes)
        finally:
            recorder.settle(SETTLE_S)
            self._app.unmount(name)
