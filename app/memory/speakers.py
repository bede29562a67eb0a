"""Decides who speaks in a session whose messages have names, and gives each statement its speaker.

The user is whoever has no name, the user's own name, or the only name in the session; everybody else is another speaker.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from msgspec.structs import replace

from app.memory.candidate import MemoryCandidate, Provenance, Triple
from app.memory.text import slug

PREFIX_CHARS = 120
"""Characters at the beginning of a message in which a name and its colon stand."""
NAME_CHARS = 64
"""Most characters of a speaker's name that are kept."""
_SEPARATORS = re.compile(r"[\s_.\-]+")
_MARKS = re.compile("[\u0300-\u036f]")
_BOT = re.compile(
    r"^(?:bot|assistant|(?:chat)?gpt|system|agent)\b"
    r"|\b(?:bots?|agent|(?:slack|chat|help|helper|discord|github|weather|support|auto|robo)bot)(?: ?\d+)?$"
    r"|(?:assistant|gpt|system)(?: ?\d+)?$"
)
"""A program's name says so at one end. The names of products, as Alexa, Claude and Gemini, are people's, too."""
_INNER_CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")
_PREFIX = re.compile(r"\s*([^\W\d_a-zß-öø-ÿ][\w.'’-]{0,30}(?: [\w.'’-]{1,30}){0,2})(?:: +|：\s*)(?=\S)")
_LABEL_TEXT = """
    note notes question questions q a answer answers task context summary input output example system user assistant human ai
    me you subject re fwd update ps edit todo title description goal name age job frage antwort aufgabe hinweis pregunta
    respuesta tarea nota question réponse tâche pergunta resposta tarefa warning error info hint tip prompt code http https
"""
_LABELS = frozenset(_LABEL_TEXT.split())
"""First words before a colon that name nobody."""
_MAX_NAME_WORDS = 3
"""Most words of a name, without particles: more are a sentence, which a prompt must not quote as a name."""
_PARTICLE_TEXT = "al bin da das de del den der di do dos du e el la las le los van von y zu"
_PARTICLES = frozenset(_PARTICLE_TEXT.split())
_NOT_IN_NAMES = re.compile(r"[<>{}|=`!?;\"“”«»\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLACEHOLDER_NUMBERS = 10_000
"""Numbers that tell speakers without a proper name apart."""
_GENERIC_NAMES = frozenset(["user", "human", "me", "you", "client", "customer", "anonymous", "guest"])
"""Names that tell nobody apart, because an application gives them to each user."""
USER_ONLY_KINDS = frozenset(["instruction", "tool_outcome"])
"""Kinds that are learned from the user alone, for only the user's own wishes are followed."""

USER: Literal["user"] = "user"
"""The subject of triples about the user."""


class SessionSpeakers(NamedTuple):
    """The names on a session's user messages, in the order of their first messages (None: messages without a name), and the
    names by which the user is known."""

    names: Sequence[str | None]
    own_names: Collection[str] = ()

    def find_other_speakers(self) -> dict[str, str | None]:
        """Return by its name, as it came, the label of each speaker who is not the user; None for a bot, who teaches nothing.

        Spellings of one name ("Ann_Smith", "ann smith", "Ann") have the label of the first one.
        """
        own_keys = {normalize_name(format_speaker(name)) for name in self.own_names}
        people: dict[str, str] = {}
        keys: dict[str, str] = {}
        labels: dict[str, str | None] = {}
        for name in filter(None, self.names):
            if is_generic(name):
                continue
            if is_bot(name):
                labels[name] = None
                continue
            key = normalize_name(format_speaker(name))
            keys[name] = key = _find_spelling(key, people) or key
            people.setdefault(key, _format_label(name))
        if len(people) == 1 and not any(_is_unnamed(name) for name in self.names):
            return labels
        for name, key in keys.items():
            if key not in own_keys and _find_spelling(key, own_keys) is None:
                labels[name] = people[key]
        return labels


def _is_unnamed(name: str | None) -> bool:
    return name is None or is_generic(name)


def is_bot(name: str) -> bool:
    """Return whether a name is a program's."""
    words_apart = _INNER_CAPITAL.sub(" ", name)
    return any(_BOT.search(normalize_name(spelling)) is not None for spelling in (name, words_apart))


def remove_invisible(name: str) -> str:
    """Return a name without characters that nobody sees, such as zero-width spaces and direction marks."""
    return "".join(character for character in name if unicodedata.category(character) != "Cf")


def format_speaker(name: str) -> str:
    """Return a name as it may stand in a prompt: as it came, or "Speaker 4821" for a text that is no name.

    The number is the same for the same text, in every session.
    """
    visible = remove_invisible(name)
    words = [word for word in _SEPARATORS.split(visible) if word and word not in _PARTICLES]
    if len(visible) <= NAME_CHARS and len(words) <= _MAX_NAME_WORDS and not _NOT_IN_NAMES.search(visible):
        return visible
    number = int.from_bytes(sha256(visible.encode("utf-8", "surrogatepass")).digest()[:4]) % _PLACEHOLDER_NUMBERS
    return f"Speaker {number:04}"


def is_generic(name: str) -> bool:
    """Return whether a name tells nobody apart: "user", or nothing that is seen."""
    key = normalize_name(name)
    return not key or key in _GENERIC_NAMES


def find_prefix(text: str) -> str | None:
    """Return the name before a message's first colon, as group chats are exported ("Ann: I live in York"); None without one."""
    match = _PREFIX.match(text)
    return match[1].strip() if match is not None and match[1].split()[0].lower() not in _LABELS else None


def strip_prefix(text: str) -> str:
    """Return a message without its speaker's name."""
    match = _PREFIX.match(text)
    return text[match.end() :] if match is not None else text


def read_prefixes(texts: Sequence[str]) -> list[str] | None:
    """Return the names before the messages of a session if it is a group chat: each message has one, and they take turns."""
    prefixes = [find_prefix(text) for text in texts]
    names = [name for name in prefixes if name is not None]
    is_group = len(names) == len(texts) > len(set(names)) > 1
    return names if is_group else None


def normalize_name(name: str) -> str:
    """Return a name in lower case, without accents, with single spaces between its words."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", remove_invisible(name)[:NAME_CHARS]).casefold())
    return _SEPARATORS.sub(" ", plain).strip()


def _find_spelling(key: str, keys: Collection[str]) -> str | None:
    """Return the known name that this one is another spelling of: the same words, or the first of them, if only one fits."""
    if key in keys:
        return key
    words = key.split()
    matches = [
        candidate
        for candidate in filter(None, keys)
        if candidate.split() == words[: len(candidate.split())] or words == candidate.split()[: len(words)]
    ]
    return matches[0] if len(matches) == 1 else None


def _format_label(name: str) -> str:
    """Return a name as it is shown."""
    label = _SEPARATORS.sub(" ", format_speaker(name)).strip(" :").replace(":", "")
    return label.title() if label.islower() else label


def attribute_to_speaker(candidates: Iterable[MemoryCandidate], label: str) -> list[MemoryCandidate]:
    """Return what another speaker states as statements about that speaker: "Ann: Lives in York".

    Wishes, and what is only concluded, are left out.
    """
    subject = _format_subject(label)
    entity_id = slug(label) or normalize_name(label)
    return [
        replace(
            candidate,
            content=f"{label}: {candidate.content}",
            speaker=label,
            triple=_move_triple(candidate.triple, subject),
            entity_ids=tuple(dict.fromkeys((*candidate.entity_ids, entity_id))),
            ends=tuple(replace(ended, subject=_move_subject(ended.subject, subject)) for ended in candidate.ends),
            doubts=(),
        )
        for candidate in candidates
        if candidate.kind not in USER_ONLY_KINDS and candidate.provenance_type != Provenance.SYSTEM_INFERRED
    ]


def find_own_triple(triple: Triple, label: str | None) -> Triple | None:
    """Return a stored triple as its speaker would say it, or None if it is about somebody else.

    Args:
        triple: the triple as it is stored; that of another speaker has the speaker's subject.
        label: the speaker's label; None: the user.
    """
    if label is None:
        return triple
    subject = _format_subject(label)
    if triple.subject == subject:
        return Triple(USER, triple.predicate, triple.value)
    if triple.subject.startswith(f"{subject}."):
        return Triple(triple.subject[len(subject) + 1 :], triple.predicate, triple.value)
    return None


def _format_subject(label: str) -> str:
    """Return the subject of statements about a speaker: no slug has its first character, so a speaker called "Sister" is not
    taken for the user's sister."""
    return "@" + (slug(label) or normalize_name(label))


def _move_triple(triple: Triple | None, subject: str) -> Triple | None:
    return Triple(_move_subject(triple.subject, subject), triple.predicate, triple.value) if triple else None


def _move_subject(subject: str, speaker: str) -> str:
    """Return a subject from a speaker's point of view ("user", "wife") as one of its own ("@ann", "@ann.wife")."""
    return speaker if subject == USER else f"{speaker}.{subject}"
