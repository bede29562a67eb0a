"""Separates thoughts in the text of an answer, such as `<think>…</think>`, from the answer itself.

A server without a parser for its model's format leaves thoughts in front of the answer. Only what stands in front is a
thought: an answer may speak about the tags, or be XML. In doubt a text is an answer, because a lost answer is worse than a
thought that is kept.
"""

from __future__ import annotations

import re
from itertools import islice

_MOST_MENTIONS = 32
"""Tags that are looked at in one text, so that the work is linear in its length: models open one thought, or a few."""

_BLANK = r"[\s\ufeff\u200b]*"
_CORE = "think|thinking|seed:think|mm:think|longcat_think|antthinking"
_TAGS = f"{_CORE}|thoughts?|reasoning|analysis|scratchpad|reflection|inner_thoughts|thinking_process|chain_of_thought"
"""Names of tags; those that are not in `_CORE` are elements of the XML that some users ask for, too."""
_TYPED = "thinking...\n"
_MARKS = {
    "[think]": "[/THINK]",  # Mistral
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",  # gpt-oss
    "<|channel>thought\n": "<channel|>",  # Gemma
    "◁think▷": "◁/think▷",  # Kimi
    _TYPED: "\n...done thinking.\n",  # Ollama's command line
}
"""Marks that open a thought, in lower case, and those that close it."""
_OPENS = (
    r"(?P<bold>[*_]{0,3})<(?P<bar>\|(?:(?:begin|start)_(?:of_)?)?)?"
    rf"(?P<tag>{_TAGS})(?P<attributes>\s[^<>]*)?\|?>(?P=bold)?|(?P<mark>{'|'.join(map(re.escape, _MARKS))})"
)
_CLOSES = r"<(?:/\|?|\|/|\|end_(?:of_)?)"
_CLOSING_MARKS = "|".join(re.escape(closing) for opening, closing in _MARKS.items() if opening != _TYPED)
_OPENING = re.compile(rf"{_BLANK}(?:<\|start\|>assistant)?(?:{_OPENS})", re.IGNORECASE)
_ANY_OPENING = re.compile(_OPENS, re.IGNORECASE)
_TAG_CLOSING = re.compile(rf"{_CLOSES}(?P<tag>{_TAGS})\s*\|?>", re.IGNORECASE)
_UNOPENED_CLOSING = re.compile(rf"</(?:{_CORE})\s*>|{_CLOSES}(?:{_TAGS})\|>|{_CLOSING_MARKS}", re.IGNORECASE)
_ELEMENT = re.compile(r"<(?P<end>[/!?]?)(?P<name>[^\W\d][\w:.-]*)(?:\s[^<>]*?)?(?P<empty>/?)>")
_REST_OF_BLANK = re.compile(_BLANK)
_BLANK_LINE = re.compile(r"[ \t]*\r?\n[ \t]*\r?\n")
_SENTENCE_ENDS = ".!?…。！？؟।"
_ENDED = re.compile(rf"[{_SENTENCE_ENDS}]\s*(?:{_CLOSES}(?:{_TAGS})\s*\|?>|{_CLOSING_MARKS})\Z", re.IGNORECASE)
"""The end of a sentence, and a closing tag: what stands before is a thought, even if both go on in lower case."""
_CLOSERS = "`'\"”»)]*_"
"""Characters that may stand between the end of a sentence and the tag."""
_QUOTES = frozenset("`'\"“”«»")
_CLOSING_CONTEXT = 80
"""Characters behind a tag that are looked at."""


def split_thought(text: str, *, cut: bool = True, calls: bool = False) -> tuple[str, str]:
    """Return the thoughts in front of an answer, tags and white space included, and the answer itself.

    Args:
        text: What the model wrote; the two parts joined are this text.
        cut: Whether the answer may have broken off in its thought. If it did not, a tag that is never closed and in front
            of a sentence that goes on ("<think> is a tag") is the answer's own text.
        calls: Whether the answer calls tools, and so may have no text. Otherwise an element that may be XML is a thought
            only in front of prose.
    """
    end = certain = 0
    for _ in range(_MOST_MENTIONS):
        opening = _OPENING.match(text, end)
        if opening is None:
            break
        close = _close_thought(text, opening)
        is_element = _is_element(opening)
        if is_element and (opening["attributes"] or _has_element(text[opening.end() : close])):
            break
        if close is None:
            is_text = (opening["mark"] or "").lower() == _TYPED
            if not is_text and (cut or not (is_element or _names_tag(text, opening.end()))):
                return text, ""
            break
        if _names_tag(text, opening.end()) and _goes_on(text, close) and not _ENDED.search(text, opening.end(), close):
            break
        end = close
        certain = certain if is_element else end
    blank = _REST_OF_BLANK.match(text, end)
    after = blank.end() if blank is not None else end
    if end != certain and (_ELEMENT.match(text, after) or (after == len(text) and not calls)):
        end = certain
    end = end or _close_unopened(text)
    blank = _REST_OF_BLANK.match(text, end)
    end = blank.end() if end and blank is not None else end
    return text[:end], text[end:]


def _is_element(opening: re.Match[str]) -> bool:
    """Return whether an opening tag may as well be that of an XML element that was asked for."""
    return not (opening["mark"] or opening["bar"] or opening["tag"].lower() in _CORE.split("|"))


def _has_element(text: str) -> bool:
    names: dict[str, set[str]] = {"": set(), "/": set()}
    for tag in _ELEMENT.finditer(text):
        if tag["empty"]:
            return True
        names.setdefault(tag["end"], set()).add(tag["name"])
    return not names[""].isdisjoint(names["/"])


def _names_tag(text: str, end: int) -> bool:
    """Return whether a sentence goes on behind the opening tag that ends there: then it is named, and opens nothing."""
    following = text[end : end + _CLOSING_CONTEXT].lstrip(" \t")
    return text[end : end + 1] in (" ", "\t") and following[:1].isalpha() and not following[0].isupper()


def _goes_on(text: str, end: int) -> bool:
    """Return whether a sentence goes on behind the closing tag that ends there, on its line and in lower case."""
    return text[end : end + 1] in (" ", "\t") and text[end : end + _CLOSING_CONTEXT].lstrip(" \t")[:1].islower()


def _close_thought(text: str, opening: re.Match[str]) -> int | None:
    """Return where the thought that is opened there ends; None: it is never closed, or the tags are only named."""
    if mark := opening["mark"]:
        pattern, start = re.compile(re.escape(_MARKS[mark.lower()]), re.IGNORECASE), opening.end() - mark.endswith("\n")
    else:
        pattern, start = _TAG_CLOSING, opening.end()
    closings = list(islice(pattern.finditer(text, start), _MOST_MENTIONS))
    family = [closing for closing in closings if mark or _is_same_tag(opening, closing)]
    unquoted = [closing for closing in family if not _is_quoted(text, closing)]
    if not unquoted:
        others = (closing for closing in closings if closing not in family and not _is_quoted(text, closing))
        same = [closing for closing in family if mark or closing["tag"].lower() == opening["tag"].lower()]
        fallback = next((closing for closing in others if _ends_thought(text, closing)), same[0] if same else None)
        return fallback.end() if fallback is not None else None
    chosen = unquoted[0]
    nested = [found for found in islice(_ANY_OPENING.finditer(text, opening.end()), _MOST_MENTIONS) if not mark]
    nested = [
        found for found in nested if found["tag"] and _is_same_tag(opening, found) and not _is_quoted(text, found)
    ]
    for closed, closing in enumerate(unquoted):
        if sum(found.start() < closing.start() for found in nested) <= closed:
            chosen = closing if _ends_thought(text, closing) else chosen
            break
    end = chosen.end()
    bold = opening["bold"] or ""
    return end + len(bold) if bold and text.startswith(bold, end) and not text[end + len(bold) :][:1].isalnum() else end


def _is_same_tag(opening: re.Match[str], tag: re.Match[str]) -> bool:
    names = {opening["tag"].lower(), tag["tag"].lower()}
    return len(names) == 1 or names <= set(_CORE.split("|"))


def _close_unopened(text: str) -> int:
    """Return where a thought ends whose opening tag stood in the prompt; 0: the text has none."""
    for closing in islice(_UNOPENED_CLOSING.finditer(text), _MOST_MENTIONS):
        before = text[: closing.start()]
        if _is_in_code(before) or _is_quoted(text, closing):
            continue
        openings = islice(_ANY_OPENING.finditer(before), _MOST_MENTIONS)
        opened = any(not _is_in_code(before[: opening.start()]) for opening in openings)
        return closing.end() if not opened and _ends_thought(text, closing) else 0
    return 0


def _ends_thought(text: str, closing: re.Match[str]) -> bool:
    """Tell a closing tag from the mention of one by what stands around it; in doubt it is a mention."""
    before, after = text[: closing.start()], text[closing.end() : closing.end() + _CLOSING_CONTEXT]
    following = after.lstrip()[:1]
    if following and following in ".,;:!?)":
        return False
    line = before.rstrip()
    is_apart = _BLANK_LINE.match(after) is not None
    if not line:
        return is_apart or not following.islower()
    words = line.rstrip(_CLOSERS)
    ended = words[-1:] in ("", "\n") or words[-1] in _SENTENCE_ENDS
    if line == before:
        return ended or is_apart or (words[-1].isalnum() and (after[:1] in ("", "\r", "\n") or after[0].isalnum()))
    if following.islower():
        return False
    gap = before[len(line) :]
    if "\n" not in gap:
        return ended and is_apart
    is_code = gap.rpartition("\n")[2].startswith(("    ", "\t"))
    return not is_code and (ended or (is_apart and words[-1] not in ":："))


def _is_in_code(before: str) -> bool:
    """Return whether what follows `before` stands in a code block, or in code within a line."""
    return before.count("```") % 2 == 1 or before[before.rfind("\n") + 1 :].count("`") % 2 == 1


def _is_quoted(text: str, found: re.Match[str]) -> bool:
    around = text[max(0, found.start() - 1) : found.start()], text[found.end() : found.end() + 1]
    return all(character in _QUOTES for character in around)
