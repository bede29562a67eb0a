"""How a prompt's tokens were spent, and what became of each candidate, for the page of a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from app.context.score import PROFILES, THING_WEIGHT
from app.features.ui import call_words as words

BAR = 1000.0
"""Width of a bar in units of its drawing; the page scales it."""
LEAST = 2.0
"""Narrowest part of a bar, units: what is there can be seen."""
PAGE = 30
"""Candidates on a page."""
TEXT_CHARS = 600
"""Of a candidate's text, characters that are shown unfolded."""
LONGEST_CHARS = 20_000
"""Of a candidate's text, characters at most."""
SCORE_SLACK = 0.01
"""How far the parts of a score, each rounded, may be from its whole."""


class Section(NamedTuple):
    """A part of the window. `tone`: class of its colour; `of_memory`: Mneme put it there."""

    key: str
    name: str
    tokens: int
    tone: str
    words: str
    budget: int | None = None
    of_memory: bool = False


class Segment(NamedTuple):
    """A section, drawn: units from the left, units wide."""

    section: Section
    x: float
    width: float


class Spending(Struct, frozen=True):
    """`sections`: all of the window, in the order of the prompt; the last two are no part of it (`sent`)."""

    sections: Sequence[Section]
    window: int
    prompt: int
    added: int

    @property
    def sent(self) -> list[Section]:
        """The sections of the prompt itself."""
        return [each for each in self.sections if each.key not in ("reserve", "free")]

    @property
    def empty(self) -> list[Section]:
        """The sections that have nothing."""
        return [each for each in self.sections if not each.tokens]

    def share(self, section: Section, of: int) -> float:
        return section.tokens / of if of else 0.0


NOTES: Mapping[str, tuple[str, str]] = {
    "profile": ("Tenant profile", "What every prompt is told about the tenant."),
    "wishes": ("Standing wishes", "What the user has asked for always, in their own words."),
    "facts": ("Facts of the user", "What is known of the user and bears on the message."),
    "questions": ("Question to the user", "A memory in doubt, put to the user for confirmation."),
    "domain": ("Business records", "What the business's own database says of the things that were named."),
    "conflicts": ("Conflicts", "Where a memory and the records contradict each other."),
    "unclear": ("Unclear names", "Which of several things is meant."),
    "working": ("Working memory", "What tools gave in turns that the history leaves out."),
    "cards": ("Cards", "Cards that the message asks for."),
}
"""Sections of a memory block beside the memories."""


def spending(context: Mapping[str, Any]) -> Spending:
    """Where the window's tokens went, of an explained compile."""
    budget, sections = context["budget"], context.get("sections") or {}
    added = int(context.get("tokens") or 0)
    history, live = int(budget.get("history", 0)), int(budget.get("live", 0))
    made = [
        Section("system", "System prompt", int(budget.get("system", 0)), "c-part-system", "The client's, or the session's."),
        Section("tools", "Tools", int(budget.get("tools", 0)), "c-part-tools", "Definitions of what the model may call."),
        Section(
            "history", "History", history, "c-part-history", "Earlier turns that Mneme supplied.",
            sections.get("history", {}).get("budget"), True,
        ),
        Section("live", "Earlier memory", live, "c-part-live", "Blocks of earlier turns, again byte for byte.", None, True),
    ]  # fmt: skip
    block = max(0, added - history - live)
    beside = []
    for key, (name, meaning) in NOTES.items():
        if key in sections:
            told = sections[key]
            beside.append(
                Section(key, name, int(told.get("tokens", 0)), "c-part-notes", meaning, told.get("budget"), True)
            )
    memories = max(0, block - sum(each.tokens for each in beside))
    room = sections.get("memories", {}).get("budget")
    made += beside
    made.append(
        Section(
            "memories", "Memories", memories, "c-part-memories",
            "What was found for this question, with the lines around it.", room, True,
        )
    )  # fmt: skip
    made.append(
        Section("client", "Client's messages", int(budget.get("client", 0)), "c-part-client", "What the client sent.")
    )
    prompt = sum(each.tokens for each in made)
    window, reserve = int(budget.get("window", 0)), int(budget.get("reserve", 0))
    made.append(Section("reserve", "Kept for the answer", reserve, "c-part-reserve", "The model may answer so much."))
    made.append(Section("free", "Free", max(0, window - prompt - reserve), "c-part-free", "Nobody needed it."))
    return Spending(made, window, prompt, added)


def segments(sections: Sequence[Section], width: float = BAR) -> list[Segment]:
    """The sections as parts of a bar that they fill together; what has tokens is at least `LEAST` wide."""
    told = [each for each in sections if each.tokens > 0]
    whole = sum(each.tokens for each in told)
    if not whole:
        return []
    room = width - LEAST * len(told)
    x, made = 0.0, []
    for each in told:
        part = LEAST + max(0.0, room) * each.tokens / whole
        made.append(Segment(each, round(x, 2), round(part, 2)))
        x += part
    return made


class SignalPart(NamedTuple):
    """A signal of a candidate. `share`: of a bar, 0..1. `adds`: to the score; None where the weights of then are not known."""

    name: str
    words: str
    value: float
    share: float
    adds: float | None


class CandidateRow(Struct, frozen=True):
    """A candidate, to be shown."""

    item: Mapping[str, Any]
    reason: words.WordMeaning
    parts: Sequence[SignalPart]
    text: str | None
    rest: int
    """Characters that are not shown."""
    channels: Sequence[str]

    @property
    def chosen(self) -> bool:
        return bool(self.item["chosen"])

    @property
    def folded(self) -> bool:
        return self.text is not None and len(self.text) > TEXT_CHARS


def rows(items: Sequence[Mapping[str, Any]], strategy: str, highest: float) -> list[CandidateRow]:
    """Candidates as they are shown. `highest`: the largest value of any signal, at least 1."""
    return [_row(each, strategy, highest) for each in items]


def highest(items: Sequence[Mapping[str, Any]]) -> float:
    """The largest value of any signal, at least 1: all bars have one scale."""
    return max((abs(value) for each in items for value in each["signals"].values()), default=1.0) or 1.0


def _row(item: Mapping[str, Any], strategy: str, scale: float) -> CandidateRow:
    weights = weights_of(item, strategy)
    parts = [
        SignalPart(
            words.signal(name).name,
            words.signal(name).words,
            value,
            min(1.0, abs(value) / max(scale, 1.0)),
            None if weights is None else weights[name] * value,
        )
        for name, value in item["signals"].items()
        if value
    ]
    text = item.get("text")
    shown = None if text is None else text[:LONGEST_CHARS]
    rest = 0 if text is None else len(text) - len(shown or "")
    return CandidateRow(
        item,
        words.reason(item["reason"]),
        parts,
        shown,
        rest,
        [words.CHANNELS.get(each, each) for each in item["legs"]],
    )


def weights_of(item: Mapping[str, Any], strategy: str) -> Mapping[str, float] | None:
    """The weights that make the score what it is; None where those of the profile's name do not (they can be set)."""
    profile = PROFILES.get(strategy)
    if profile is None:
        return None
    weights = {**profile.weights, "entity_overlap": profile.weights.get("entity_overlap", THING_WEIGHT)}
    signals = item["signals"]
    if any(name not in weights for name in signals):
        return None
    total = sum(weights[name] * value for name, value in signals.items())
    return weights if abs(total - item["score"]) <= SCORE_SLACK else None


def picked(items: Sequence[Mapping[str, Any]], show: str) -> list[Mapping[str, Any]]:
    """Those that are asked for: chosen, dropped, or of one reason; else all."""
    if show == "all":
        return list(items)
    if show in ("chosen", "dropped"):
        return [each for each in items if each["chosen"] == (show == "chosen")]
    return [each for each in items if each["reason"] == show]
