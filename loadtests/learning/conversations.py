"""Labelled conversations: the users' messages from the sources' own files, and the labels of this folder by their places."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from app.memory.tagger import Frame, StatementKind, Subject

HERE = Path(__file__).parent
LABELS, TALKS, SENTENCES = HERE / "labels", HERE / "talks", HERE / "sentences.jsonl"

MAX_CHARS = 20_000
"""Characters of a ShareGPT message that are read; the places of labels count in the message so cut."""
MAX_SHAREGPT_TURNS, MAX_XPERSONA_TURNS = 12, 16
"""Turns of a conversation that were labelled, of both sides together."""
_SHAREGPT_USERS = ("human", "user")
_XPERSONA_LANGUAGES = {"Jp": "ja"}
_TOPICAL_FILES = ("valid_freq", "valid_rare")
_TOPICAL_USER = "agent_1"

Messages = dict[int, str]
"""The user's messages by their numbers among all turns of the conversation."""
Part = Literal["fit", "held out"]


class FactLabel(NamedTuple):
    """A stretch (start, end, in characters) of message `number` that says something lasting. `sure`: worth keeping."""

    number: int
    start: int
    end: int
    kind: StatementKind
    subject: Subject
    sure: bool


class FrameLabel(NamedTuple):
    """A stretch of message `number` whose words are not the user's own statements."""

    number: int
    start: int
    end: int
    frame: Frame


class DevelopmentRow(NamedTuple):
    """A label of the development file: the fact in the third person, and the shortest words of the user that say it."""

    fact: str
    quote: str
    sure: bool


@dataclass(slots=True)
class Conversation:
    """A conversation that was read. `rows` is empty but for those of the development file, which have no frame labels."""

    id: str
    source: str
    language: str
    messages: Messages
    facts: list[FactLabel] = field(default_factory=list)
    frames: list[FrameLabel] = field(default_factory=list)
    rows: list[DevelopmentRow] = field(default_factory=list)


class LabelSet(NamedTuple):
    """The labels of one conversation."""

    facts: list[FactLabel]
    frames: list[FrameLabel]


def read_labels(file: Path) -> dict[str, LabelSet]:
    """Return the labels of each conversation of a source, also of those that were read and have none.

    Raises:
        ValueError: a line has none of the three forms (rubric.md).
    """
    labels: dict[str, LabelSet] = {}
    for line_number, line in enumerate(file.read_text().splitlines(), 1):
        match line.split("\t"):
            case [key, "none"]:
                labels.setdefault(key, LabelSet([], []))
            case [key, number, start, end, "frame", frame]:
                label = FrameLabel(int(number), int(start), int(end), frame)  # type: ignore[arg-type]
                labels.setdefault(key, LabelSet([], [])).frames.append(label)
            case [key, number, start, end, kind, subject, sure]:
                fact = FactLabel(int(number), int(start), int(end), kind, subject, sure == "1")  # type: ignore[arg-type]
                labels.setdefault(key, LabelSet([], [])).facts.append(fact)
            case _:
                raise ValueError(
                    f"{file.name}:{line_number} must have 2, 6 or 7 fields with tabs between them: {line!r}"
                )
    return labels


def check_kept(labelled: Iterable[str], kept_ids: Iterable[str]) -> None:
    """Raise `ValueError` if a labelled conversation, or another part of it, is kept for checking."""
    kept_conversations = {_find_conversation(key) for key in kept_ids}
    wrong = sorted(key for key in labelled if _find_conversation(key) in kept_conversations)
    if wrong:
        raise ValueError(f"these conversations are kept for checking and must not be labelled: {', '.join(wrong)}")


def read_sharegpt(file: Path, ids: Iterable[str]) -> dict[str, Messages]:
    """Return the messages of ShareGPT's conversations with these ids."""
    wanted = set(ids)
    return {
        conversation["id"]: _read_turns(conversation, 0, MAX_SHAREGPT_TURNS)
        for conversation in _load_sharegpt(file)
        if conversation["id"] in wanted
    }


def read_unlabelled(file: Path, labelled: Iterable[str], left_out: Iterable[str]) -> list[Conversation]:
    """Return what has no label in ShareGPT: other conversations, and later turns of labelled ones.

    Args:
        file: ShareGPT's file.
        labelled: ids of labelled conversations, of which only later turns are read.
        left_out: ids of conversations of which no part is read.
    """
    with_labels, never = set(labelled), {_find_conversation(key) for key in left_out}
    conversations: list[Conversation] = []
    for stored in _load_sharegpt(file):
        key = stored["id"]
        if _find_conversation(key) not in never:
            messages = _read_turns(stored, MAX_SHAREGPT_TURNS if key in with_labels else 0, None)
            conversations.append(Conversation(key, "sharegpt", "en", messages))
    return conversations


def _load_sharegpt(file: Path) -> list[dict[str, Any]]:
    text = file.read_text()
    try:
        conversations: list[dict[str, Any]] = json.loads(text)
    except json.JSONDecodeError:
        # The package's file breaks off inside a conversation.
        conversations = json.loads(text[: text.rfind("\n  },")] + "\n  }\n]")
    return conversations


def _read_turns(conversation: Mapping[str, Any], first: int, end: int | None) -> Messages:
    return {
        number: turn["value"][:MAX_CHARS]
        for number, turn in enumerate(conversation["conversations"][:end])
        if number >= first and turn["from"] in _SHAREGPT_USERS and turn["value"].strip()
    }


def _find_conversation(key: str) -> str:
    """Return the id without the number of a part: ShareGPT cuts a long conversation into parts with the ids `<id>_<number>`."""
    return key.rpartition("_")[0] or key


def read_xpersona(folder: Path, ids: Iterable[str]) -> dict[str, Messages]:
    """Return the messages of the second speaker of XPersona's dialogues. An id is `<language>-<valid or test>-<index>`."""
    files: dict[str, list[dict[str, Any]]] = {}
    conversations: dict[str, Messages] = {}
    for key in ids:
        language, split, index = key.split("-")
        name = f"En_persona_{split}" if language == "En" else f"{language}_persona_split_{split}_human_annotated"
        if name not in files:
            files[name] = json.loads((folder / "dataset" / f"{name}.json").read_text())
        pairs = files[name][int(index)]["dialogue"][: MAX_XPERSONA_TURNS // 2]
        conversations[key] = {2 * place + 1: answer for place, (_, answer) in enumerate(pairs)}
    return conversations


def read_topical(folder: Path, ids: Iterable[str]) -> dict[str, Messages]:
    """Return the messages of the first speaker of Topical-Chat's conversations with these ids."""
    wanted = set(ids)
    conversations: dict[str, Messages] = {}
    for name in _TOPICAL_FILES:
        for key, stored in json.loads((folder / "conversations" / f"{name}.json").read_text()).items():
            if key in wanted:
                turns = enumerate(stored["content"])
                conversations[key] = {
                    number: turn["message"] for number, turn in turns if turn["agent"] == _TOPICAL_USER
                }
    return conversations


READERS: Mapping[str, Callable[[Path, Iterable[str]], dict[str, Messages]]] = {
    "sharegpt": read_sharegpt,
    "topical": read_topical,
    "xpersona": read_xpersona,
}


def read_source(source: str, path: Path, kept_ids: Sequence[str], limit: int | None = None) -> list[Conversation]:
    """Return the labelled conversations of a source, by id.

    Args:
        source: a name of `READERS`.
        path: the source's file or folder.
        kept_ids: ids that are kept for checking.
        limit: the greatest number of conversations, all by default.

    Raises:
        ValueError: a labelled conversation is kept for checking, or is not in the source.
    """
    labels = read_labels(LABELS / f"{source}.tsv")
    check_kept(labels, kept_ids)
    ids = sorted(labels)[:limit]
    messages = READERS[source](path, ids)
    missing = [key for key in ids if key not in messages]
    if missing:
        raise ValueError(
            f"{path} lacks {len(missing)} labelled conversations, the first {missing[0]}; name the whole source"
        )
    return [
        Conversation(key, source, _find_language(source, key), messages[key], labels[key].facts, labels[key].frames)
        for key in ids
    ]


def _find_language(source: str, key: str) -> str:
    language = key.partition("-")[0]
    return _XPERSONA_LANGUAGES.get(language, language.lower()) if source == "xpersona" else "en"


def read_development(
    file: Path, sharegpt: Path, kept_ids: Sequence[str], limit: int | None = None
) -> list[Conversation]:
    """Return the conversations of a file of development labels: `{"id": [{"m", "fact", "quote", "kind", "sure"}]}`."""
    labels = json.loads(file.read_text())
    check_kept(labels, kept_ids)
    ids = sorted(labels)[:limit]
    messages = read_sharegpt(sharegpt, ids)
    return [
        Conversation(
            key,
            "development",
            "en",
            messages[key],
            rows=[DevelopmentRow(row["fact"], row.get("quote") or "", bool(row["sure"])) for row in labels[key]],
        )
        for key in ids
    ]


def read_talks(part: Part, limit: int | None = None) -> list[Conversation]:
    """Return the project's own conversations of each language. Those with an even number are held out."""
    conversations: list[Conversation] = []
    for file in sorted(TALKS.glob("*.jsonl")):
        talks = [json.loads(line) for line in file.read_text().splitlines()]
        chosen = [talk for talk in talks if (int(talk["id"].rpartition("-")[2]) % 2 == 0) == (part == "held out")]
        conversations += [_read_talk(talk, file.stem) for talk in chosen[:limit]]
    return conversations


def _read_talk(talk: Mapping[str, Any], language: str) -> Conversation:
    conversation = Conversation(talk["id"], "talks", language, {})
    for number, message in enumerate(talk["messages"]):
        text = conversation.messages[number] = message["text"]
        for fact in message["facts"]:
            place = find_quote(text, fact["quote"])
            if place is not None:
                label = FactLabel(number, *place, fact["kind"], name_subject(fact["about"]), True)
                conversation.facts.append(label)
        if message["frame"]:
            conversation.frames.append(FrameLabel(number, *find_lines(text, message["frame_lines"]), message["frame"]))
    return conversation


def read_sentences(limit: int | None = None) -> list[Conversation]:
    """Return the labelled sentences of the tests of the rules, each a conversation, without those that they hold out."""
    conversations: list[Conversation] = []
    for number, line in enumerate(SENTENCES.read_text().splitlines()[:limit]):
        stored = json.loads(line)
        facts = [
            FactLabel(0, fact["start"], fact["end"], fact["kind"], name_subject(fact["about"]), True)
            for fact in stored["facts"]
        ]
        conversations.append(Conversation(str(number), "sentences", stored["language"], {0: stored["text"]}, facts))
    return conversations


def name_subject(about: str) -> Subject:
    """Return the subject of a label: a relation or a name is another than the user and the user's group."""
    return "user" if about == "user" else "group" if about == "group" else "other"


def find_quote(text: str, quote: str) -> tuple[int, int] | None:
    """Return the first place of a quotation, without regard to white space, or None."""
    match = re.search(r"\s+".join(map(re.escape, quote.split())), text)
    return None if match is None else match.span()


def find_lines(text: str, lines: str) -> tuple[int, int]:
    """Return the place of the lines `3`, `3-9` or `*` (all) of a text."""
    if lines == "*":
        return 0, len(text)
    first, _, last = lines.partition("-")
    lengths = [len(line) + 1 for line in text.split("\n")]
    return sum(lengths[: int(first) - 1]), min(len(text), sum(lengths[: int(last or first)]) - 1)
