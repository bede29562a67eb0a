"""Measures short talks in eight languages: recalled, replaced, ended, forgotten, wishes, unrelated.

python -m loadtests.short_talks [--shown]

Each talk is a user of its own, at a server and a worker as they ship, without a helper LLM. The last message of a talk opens a
new conversation; what its prompt tells decides. `short_talks.txt` has the talks: the part `fitted` was looked at while the
rules were written, `held` and `second` were written before them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import click
import httpx

from loadtests import fill
from loadtests.stack import Stack, running
from loadtests.work import MODEL, PATH

FILE = Path(__file__).with_name("short_talks.txt")
KEPT = f"{MODEL}:chunks=4;keep=1"
TIMEOUT_S = 60.0
NEW = "##"
"""The line's part that begins a new conversation."""
WORDS_BETWEEN = "\n"


class ShortTalk(NamedTuple):
    """A line of the file. `must_tell` and `must_not_tell`: patterns; `beside`: what excuses the second."""

    part: str
    kind: str
    language: str
    messages: tuple[str, ...]
    must_tell: str
    must_not_tell: str
    beside: str

    def is_held(self, memory: str) -> bool:
        """Return whether the memory in the prompt is right."""
        if self.must_tell and re.search(self.must_tell, memory) is None:
            return False
        return (
            not self.must_not_tell
            or re.search(self.must_not_tell, memory) is None
            or bool(self.beside and re.search(self.beside, memory))
        )


def read_talks() -> list[ShortTalk]:
    """Return the talks of the file, in order."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    talks = []
    for line in lines:
        part, kind, language, messages, *patterns = line.split(" | ")
        parts = ["" if part == "-" else part for part in patterns]
        talks.append(ShortTalk(part, kind, language, tuple(messages.split(" / ")), *parts))
    return talks


def play(stack: Stack, talks: list[ShortTalk]) -> list[str]:
    """Play the talks side by side, turn by turn, and return the memory in the prompt of each talk's last message."""
    transcripts: list[list[dict[str, str]]] = [[] for _ in talks]
    memories = [""] * len(talks)
    with httpx.Client(base_url=stack.base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        for turn in range(max(len(talk.messages) for talk in talks)):
            for number, talk in enumerate(talks):
                if turn >= len(talk.messages):
                    continue
                if (message := talk.messages[turn]) == NEW:
                    transcripts[number] = []
                    continue
                transcripts[number].append({"role": "user", "content": message})
                body = {"model": KEPT, "messages": transcripts[number]}
                answer = (
                    client.post(PATH, json=body, headers={"X-Mneme-User": f"talk-{number}"}).raise_for_status().json()
                )
                transcripts[number].append(answer["choices"][0]["message"])
                if turn == len(talk.messages) - 1:
                    prompt = json.loads(stack.received()[-1])["messages"]
                    memories[number] = WORDS_BETWEEN.join(str(part["content"]) for part in prompt).removesuffix(message)
            fill.wait_until_learned(stack.base_url, lambda line: None)
    return memories


@click.command()
@click.option("--shown", "print_failed", is_flag=True, help="Print the prompts of the talks that failed.")
def main(print_failed: bool) -> None:
    """Print how many talks of each part and kind are held."""
    talks = read_talks()
    with running() as stack, stack.worker():
        memories = play(stack, talks)
    held_count: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for talk, memory in zip(talks, memories, strict=True):
        is_held = talk.is_held(memory)
        for kind in (talk.kind, "all"):
            held_count[talk.part, kind] += is_held
            count[talk.part, kind] += 1
        if print_failed and not is_held:
            click.echo(f"--- {talk.part} {talk.kind} {talk.language}: {' / '.join(talk.messages)}\n{memory}")
    for key in count:
        click.echo(f"{key[0]}, {key[1]}: {held_count[key]} of {count[key]}")


if __name__ == "__main__":
    main()
