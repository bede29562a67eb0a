"""The labelled sentences of tests/fixtures/languages, and how well the rules find what they say.

`<code>.dev.tsv` the rules were written with, `<code>.held.tsv` not: the halves were drawn by the sentence's hash before there
were
rules. A line is `sentence<TAB>labels`, labels joined by `; `:

    lives_in=Berlin  wife.name=Maria   a statement with that triple (the value holds these words)
    says=never emojis                  a statement whose content holds these words
    end works_at=Acme                  that it ended
    doubt gym                          that it is in doubt
    forget thing=Acme  recall everything …   a command: its kind, scope, and words of what it is about
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from app.memory.candidate import Ended, MemoryCandidate, SourceExchange
from app.memory.commands import Command, commands
from app.memory.extract import extract

FOLDER = Path(__file__).parents[1] / "fixtures" / "languages"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Case(NamedTuple):
    text: str
    labels: tuple[str, ...]


class Score(NamedTuple):
    """Shares of 0..1; `report`: what was wrong and what was missed, by sentence."""

    precision: float
    recall: float
    report: tuple[str, ...]


def cases(code: str, half: str) -> Iterator[Case]:
    """The sentences of one language's `dev` or `held` half."""
    for line in (FOLDER / f"{code}.{half}.tsv").read_text(encoding="utf-8").splitlines():
        text, _, labels = line.partition("\t")
        yield Case(text, tuple(each.strip() for each in labels.split(";") if each.strip()))


def score(of: Iterable[Case]) -> Score:
    """What is found and not labelled is wrong; what is labelled and not found is missed."""
    right = wrong = hit = missed = 0
    report: list[str] = []
    for text, labels in of:
        stated, ordered = extract(SourceExchange(text, NOW)), [each for each in commands(text) if each.plain]
        ends = [end for each in stated for end in each.ends]
        doubted = {f"doubt {name}" for each in stated for name in each.doubts}
        good = [
            each
            for each in stated
            if any(_states(label, each) or any(_ends(label, e) for e in each.ends) for label in labels)
        ]
        obeyed = [each for each in ordered if any(_orders(label, each) for label in labels)]
        right += len(good) + len(obeyed)
        wrong += len(stated) + len(ordered) - len(good) - len(obeyed)
        lost = [
            label
            for label in labels
            if label not in doubted
            and not any(_states(label, each) for each in stated)
            and not any(_ends(label, each) for each in ends)
            and not any(_orders(label, each) for each in ordered)
        ]
        hit, missed = hit + len(labels) - len(lost), missed + len(lost)
        report += [f"  wrong  {text!r} → {each.content}" for each in stated if each not in good]
        report += [f"  wrong  {text!r} → {each.kind} {each.about!r}" for each in ordered if each not in obeyed]
        report += [f"  missed {text!r} → {label}" for label in lost]
    return Score(right / max(1, right + wrong), hit / max(1, hit + missed), tuple(report))


_OTHER = ("end", "doubt", "forget", "remember", "recall", "correct")


def _states(label: str, candidate: MemoryCandidate) -> bool:
    name, _, value = label.partition("=")
    if label.split()[0] in _OTHER:
        return False
    if name == "says":
        return all(word in candidate.content.casefold() for word in value.casefold().split())
    subject, _, predicate = name.rpartition(".")
    triple = candidate.triple
    same = triple is not None and (triple.subject, triple.predicate) == (subject or "user", predicate)
    return same and triple is not None and value.casefold() in triple.value.casefold()


def _ends(label: str, ended: Ended) -> bool:
    if not label.startswith("end "):
        return False
    name, _, value = label.removeprefix("end ").partition("=")
    subject, _, predicate = name.rpartition(".")
    same = ended.subject == (subject or "user") and ended.predicate in (predicate, None)
    return same and value.casefold() in (ended.value or "").casefold()


def _orders(label: str, command: Command) -> bool:
    kind, _, rest = label.partition(" ")
    scope, _, words = rest.partition("=")
    return (kind, scope) == (command.kind, command.scope) and words.casefold() in (
        f"{command.about} {command.replacement}".casefold()
    )
