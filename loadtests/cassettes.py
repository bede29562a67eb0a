"""What many cassettes cost: `python -m loadtests.cassettes [--number 10000]` writes so many, and in a process of its own prints
the seconds of CPU until they are loaded and in a deck, the microseconds of a match by each matching, the milliseconds of a miss
with its nearest cassette, and the memory.

Every fourth is the answer in one piece, the others are streams of 40 events; each has a conversation of one to four turns.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from mneme_replay.cassette import Cassette
from mneme_replay.deck import Deck
from mneme_replay.files import load, numbered, write
from mneme_replay.requests import MATCHINGS, Asked, Reader, asked_of
from tests.support.cassettes import asking, cassette, streamed, streaming

EVENTS = 40
"""Of a stream: a short answer."""
MATCHES = 1000
MISSES = 20
SEED = 5
WORDS = [f"word{n}" for n in range(400)]


def made(number: int) -> list[Cassette]:
    """So many, always the same."""
    chance = random.Random(SEED)
    found = []
    for n in range(number):
        said = [{"role": "system", "content": "You help members of a chess club. Be brief."}]
        for turn in range(chance.randint(1, 4)):
            said += [{"role": "assistant", "content": _words(chance, 60)}] if turn else []
            said.append({"role": "user", "content": f"{_words(chance, 25)} ({n})"})
        body = asking(messages=said, stream=bool(n % 4), temperature=0.7)
        if n % 4:
            events = streaming(*(_words(chance, 1) + " " for _ in range(EVENTS)))
            found.append(streamed(n, body, events))
        else:
            found.append(cassette(n, body))
    return found


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, k=count))


def changed(asked: Asked) -> Asked:
    """The same with another last question: no cassette answers it."""
    body = json.loads(asked.body)
    body["messages"][-1]["content"] += " And which of them would you take, if it were yours?"
    return Asked(asked.method, asked.path, asked.headers, json.dumps(body).encode())


def _cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _memory_mb() -> float:
    """Memory of this process, resident, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path) -> None:
    """Load them, and play."""
    chance, before = random.Random(SEED), _memory_mb()
    began = time.process_time()
    calls = load([folder], answers=False)
    print(f"load             {time.process_time() - began:8.2f} s of CPU, {len(calls)} cassettes")
    print(f"memory           {_memory_mb():8.0f} MB at most, {before:.0f} before them")
    for matching in MATCHINGS:
        reader = Reader.of(matching)
        began = time.process_time()
        deck = Deck(calls, reader)
        indexed = time.process_time() - began
        asked = [asked_of(each) for each in (calls if matching == "sequence" else chance.sample(calls, len(calls)))]
        asked = asked[:MATCHES]
        spent = _cpu(lambda asked=asked, deck=deck: [deck.find(each) for each in asked])  # type: ignore[misc]
        assert deck.plays == len(asked)
        told = f"deck {indexed:6.2f} s, match {spent / len(asked) * 1e6:7.0f} µs"
        if matching != "sequence":
            wanted = [changed(each) for each in asked[:MISSES]]
            first = _cpu(lambda wanted=wanted, deck=deck: deck.play(wanted[0]))  # type: ignore[misc]
            deck.misses.clear()
            spent = _cpu(lambda wanted=wanted, deck=deck: [deck.play(each) for each in wanted])  # type: ignore[misc]
            right = sum(
                miss.nearest is not None and miss.nearest.request.body == each.body
                for miss, each in zip(deck.misses, asked, strict=False)
            )
            told += f", first miss {first:5.2f} s, more {spent / len(wanted) * 1e3:6.1f} ms"
            told += f" ({right} of {len(wanted)} with the one it was)"
        print(f"{matching:<17}{told}")
    print(f"memory           {_memory_mb():8.0f} MB at most, with what the misses needed")


@click.command(help=__doc__)
@click.option("--number", default=10_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Only measure what is there.")
def main(number: int, folder: Path | None) -> None:
    if folder is not None:
        measure(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        calls = made(number)
        write(Path(place), numbered(calls))
        subprocess.run([sys.executable, "-m", "loadtests.cassettes", "--folder", place], check=True)


if __name__ == "__main__":
    main()
