"""What the account of a call says in words of its own, said in plain ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class WordMeaning(NamedTuple):
    """`name`: two or three words for a list; `words`: a sentence for who asks why."""

    name: str
    words: str


REASONS: Mapping[str, WordMeaning] = {
    # `context.pack.Reason`
    "chosen": WordMeaning("In the prompt", "Chosen: it scored high enough and there was room for it."),
    "over_budget": WordMeaning("No room", "It did not fit what was left of the budget; what scored better came first."),
    "duplicate": WordMeaning("Said already", "Another item in the prompt has the same words."),
    "visible": WordMeaning(
        "There already", "It stands in the prompt already: in the conversation, or in an earlier block."
    ),
    "below_floor": WordMeaning("Scored too low", "Its score is below the least that is taken."),
    "suppressed": WordMeaning("Not valid", "It was forgotten, erased or superseded."),
    "not_asked": WordMeaning("Not asked for", "Nothing that the message says bears on it."),
    "outranked": WordMeaning("Outranked", "The business's own database says otherwise, and is the authority."),
    # those that a replay adds
    "forgotten": WordMeaning("Forgotten", "It was forgotten, deleted or erased since, so it cannot come back."),
    "not_in_force": WordMeaning("No longer so", "It was superseded or invalidated, or it expired."),
    "not_found": WordMeaning("Not found", "This compile did not find it at all."),
}
"""Why an item is in the prompt, or is not."""

WHY: Mapping[str, str] = {
    "asked": "asked for",
    "whole": "all of it was asked for",
    "topic": "bears on what was spoken of",
    "words": "its words were used",
    "worth": "its memory was found",
    "again": "said again: its block went",
    "then": "said then",
}
"""Why a fact was said (`context.bearing.Why`)."""

MEMORY: Mapping[str, WordMeaning] = {
    "ok": WordMeaning("ok", "Memory did all that it was asked for."),
    "degraded": WordMeaning("degraded", "The call was answered, but with less of memory than it should have had."),
    "bypass": WordMeaning("bypass", "The call passed through without memory."),
}
"""What memory had to do with a call."""

CAUSES: Mapping[str, str] = {
    "deadline": "memory took longer than it is given",
    "busy": "the server had no time for another search: history and what is known of the user alone",
    "store": "the database could not be reached",
    "embeddings": "the question's vector came too late: words alone were searched",
    "memory": "memory failed; the server's log says how",
    "failure": "Mneme failed; the server's log says how",
    "entities": "names could not be looked up in time",
    "domain": "the business's own database did not answer in time",
    "cards": "the cards that were asked for could not be read in time",
    "paging": "the prompt could not be shortened, and went out whole",
    "faults": "what the model asked for could not be read",
    "no-tools": "the upstream takes no tools; it was sent again without them",
    "too-long": "the upstream refused the compiled prompt for its length; it was sent again without memory",
    "limits": "limits could not be checked",
    "unstored": "the turn could not be stored",
    "memory-off": "the client asked for no memory",
    "not-chat": "no chat completion: passed through as it came",
    "not-understood": "its messages could not be read, so it passed through as it came",
    "background": "a background response: passed through as it came",
    "no-user": "the request named no user, so nobody's memory was searched",
    "unknown-response": "the response it follows is not known here: a session began with it",
    "replayed": "sent again under its Idempotency-Key: went out as the first time",
}
"""`x-mneme-reason`."""

OUTCOMES: Mapping[str, tuple[str, str]] = {
    "complete": ("complete", "good"),
    "broken": ("broken off by the upstream", "bad"),
    "gone": ("client went away", "warn"),
    "cancelled": ("cancelled", "warn"),
    "failed": ("no answer", "bad"),
}
"""How a call ended, and how that looks."""

SIGNALS: Mapping[str, WordMeaning] = {
    "text": WordMeaning(
        "words", "How well its words, and those of its neighbours, match the question (BM25; 1 is the best)."
    ),
    "vector": WordMeaning(
        "meaning", "How near its meaning, and its neighbours', is to the question (cosine; 1 is the best)."
    ),
    "own_words": WordMeaning("own words", "The user said it, not a model."),
    "remembered": WordMeaning("remembered", "It is a memory: confidence, times the authority of where it comes from."),
    "speaker": WordMeaning("speaker", "The question names who said it."),
    "timely": WordMeaning("time", "It is of the time that the question speaks of, or near it."),
    "excess": WordMeaning("length", "How much longer than 60 tokens the message is; it counts against it."),
    "digest": WordMeaning("sums up", "It sums up much where one thing is asked for; it counts against it."),
    "recap": WordMeaning("recap", "A session's summary, and the question asks what a conversation was about."),
    "freshness": WordMeaning("freshness", "How lately it was used or made."),
    "entity_match": WordMeaning("same things", "It is about something that the question is about."),
    "entity_overlap": WordMeaning("things shared", "The share of things that it and the question have in common."),
    "similarity": WordMeaning("meaning", "How near its meaning is to the question's (cosine)."),
    "semantic_similarity": WordMeaning("meaning", "How near its meaning is to the question's (cosine)."),
    "frequency": WordMeaning("use", "How often it was used, against what is used most."),
    "authority": WordMeaning("authority", "Confidence, times the authority of where it comes from."),
    "recency": WordMeaning("recency", "1 today, 0 after a year without use."),
    "importance": WordMeaning("importance", "The memory's importance at that time."),
    "access_frequency": WordMeaning("use", "Uses, of 20."),
    "temporal_relevance": WordMeaning("time", "How recent it is, or whether it is of the time that is asked for."),
    "reinforcement": WordMeaning("said again", "How often it was said again."),
}
"""The parts of a score (`context.score.SIGNALS`)."""

TIERS = ("working", "session", "episodic", "semantic", "procedural")
"""Tiers 0 to 4 (docs/explanation/memory.md)."""
CHANNELS: Mapping[str, str] = {
    "text": "words",
    "vector": "meaning",
    "entity": "the things it is about",
    "time": "the time asked for",
    "recent": "lately said",
    "summary": "summaries",
}
"""What brought an item."""

TASKS: Mapping[str, str] = {
    "continuation": "a conversation that goes on",
    "knowledge_intensive": "a question that asks for knowledge",
    "new_session": "a new conversation",
    "tool_heavy": "work with tools",
}

REBASED: Mapping[str, str] = {
    "items_gone": "something that earlier blocks said is no longer so",
    "budget_spent": "earlier blocks had filled their budget",
}

UNPAGED: Mapping[str, str] = {
    "deadline": "shortening took too long",
    "failed": "shortening failed; the server's log says how",
    "dialect": "calls of this dialect are not paged",
    "upstream-holds": "the upstream holds the conversation, not the client",
    "history-supplied": "Mneme supplies the history, and shortens it already",
}

LEVELS = ("whole", "detailed", "compact", "a line", "left out")
"""Fidelities L0 to L4 (seed 002 §1.2)."""

CHANGES: Mapping[str, tuple[str, str]] = {
    "kept": ("kept", ""),
    "moved": ("moved", "info"),
    "rescored": ("rescored", "info"),
    "new": ("new", "good"),
    "gone": ("gone", "bad"),
}


def reason(word: str) -> WordMeaning:
    """Of one that is not known, the word itself."""
    return REASONS.get(word) or WordMeaning(word.replace("_", " "), "")


def signal(name: str) -> WordMeaning:
    """As `reason`."""
    return SIGNALS.get(name) or WordMeaning(name.replace("_", " "), "")


def memory(status: str, why: str | None) -> tuple[str, str, str]:
    """A memory status as label, tone, and sentence."""
    tone = {"ok": "good", "degraded": "warn"}.get(status, "")
    known = MEMORY.get(status)
    words = known.words if known else ""
    if why:
        cause = CAUSES.get(why, why.replace("-", " "))
        words = f"{words} {cause[:1].upper()}{cause[1:]}."
    return known.name if known else status, tone, words
