"""A guard for what a helper LLM quotes: it finds the parts of a user's message that are not the user's own words.

The LLM reads whole messages and judges what is own. This guard only holds it to what text alone can show: blocks of Mneme's,
code, quotations, tagged documents, transcripts, letters, and what the user announces as material to be worked on. It is
narrower than the masking of the rules, which cannot judge: headings, lists, "Name: Ana" and "the following" are own words here.
"""

from __future__ import annotations

import re

from app.languages import all_of
from app.memory.brought_text import find_brought_text, merge_spans
from app.memory.text import injected_spans

Span = tuple[int, int]

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)|(?:```|~~~)", re.MULTILINE)
_LINES = re.compile(
    r"^[ \t]*>[^\n]*$"  # quoted
    r"|^(?: {4}|\t)(?![ \t]*(?:[-*+•–]|\d{1,2}[.)])\s)[^\n]*[(){};=<>][^\n]*$"  # indented code, but no nested list
    r"|^[ \t]*(?:[{\[][^\n]*|\"[\w .-]{1,60}\"[ \t]*:[^\n]*)$"  # JSON
    r"|^[ \t]*(?:import|from|def|class|return|const|let|var|function|#include|public|SELECT|INSERT)\b"
    r"[^\n]*(?:[{};=<>]|\w\()[^\n]*$",
    re.MULTILINE,
)
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->))*(?:-->|$)")
_TAG = re.compile(
    r"<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,200})?>|\[(document|context|email|tool|system|inst)\b[^\]\n]{0,80}\]", re.I
)
_OPEN_ENDED = frozenset(
    {"document", "context", "email", "tool", "system", "inst", "tool_result", "page", "file", "message"}
)
"""Tags whose text goes to the end of the message where no closing tag follows."""
_MAX_TAGS = 50
_QUOTED = re.compile(
    r"(?<![\w\"])\"[^\"]{1,4000}\"(?!\w)|“[^“”]{1,4000}”|„[^„“”]{1,4000}[“”]|«[^«»]{1,4000}»|「[^「」]{1,4000}」"
    r"|『[^『』]{1,4000}』|(?<![\w'])'[^'\n]{12,400}'(?!\w)|(?<![\w‘])‘[^‘\n]{12,400}’(?!\w)"
)
_NAME_CHARS, _NAME_WORDS, _HAN_NAME = 60, 3, 4
"""A quotation up to so many characters and words (or Chinese characters) is a name or a title: the nickname "The Prof"."""
_HAN = re.compile(r"[\u3400-\u9fff]")
_STATES = re.compile(r"\b(?:I|I'm|my|we|our|always|never|remember)\b", re.IGNORECASE)
_LABEL = re.compile(
    r"^[ \t]*(?:\[[^\]\n]{1,30}\][ \t]*)?(?:[*_]{0,2})([^\W\d_][\w .'-]{0,24}?)(?:[*_]{0,2})[:：](?:[*_]{0,2})[ \t]*",
    re.M,
)
_ROLES = frozenset(
    [
        "assistant",
        "human",
        "ai",
        "bot",
        "chatgpt",
        "gpt",
        "claude",
        "agent",
        "developer",
        "tool",
        "asistente",
        "assistent",
        "benutzer",
        "utilisateur",
        "usuario",
        "usuário",
        "助手",
        "用户",
        "系统",
    ]
)
"""Labels that only a transcript has; `_PAIRED` are labels of other lists, too, unless they come together."""
_PAIRED = frozenset({"user", "system", "model", "sistema", "système", "me", "you"})
_SAYS_I = re.compile(r"\b(?:I|I'm|I've|you|my|yo|soy|ich|je|j'|eu)\b|我", re.IGNORECASE)
_LETTER = re.compile(
    r"^[ \t]*(?:to whom it may|dear (?!(?:chat ?gpt|gpt|assistant|ai|claude|bot|helper|friend|mneme)\b)|"
    r"from: [^\n]*\n(?:to|sent|date|subject|cc): |subject: |-{3,} ?(?:forwarded|original)|on .{5,60} wrote:)",
    re.IGNORECASE | re.MULTILINE,
)
_WORK = (
    r"translat|summari[sz]|rewrit|rephras|paraphras|proofread|proof-read|correct|edit|fix|improve|polish|shorten|analy[sz]|"
    r"classif|review|simplif|critique|extract|transcrib|evaluat|categori[sz]|reply to|respond to|complete|continue"
)
_TEXTS = (
    r"e-?mails?|letters?|passages?|paragraphs?|quotes?|tweets?|posts?|articles?|essays?|story|stories|lyrics|dialogues?|scripts?|"
    r"transcripts?|reviews?|documents?|pages?|websites?|outputs?|inputs?|logs?|results?|comments?|poems?|speech|texts?|sentences?|"
    r"statements?|messages?|conversations?|chats?|threads?|abstracts?|resumes?|cv|files?|notes? from"
)
_TASK = re.compile(
    rf"\b(?:{_WORK})\w*\b[^.!?:\n]{{0,120}}:|\b(?:{_TEXTS})\b[^.!?:\n]{{0,60}}:"
    rf"|\b(?:says?|said|wrote|writes|reads|told me|claims?)(?: that)?[ \t]*:"
    r"|\b(?:e-?mail|message|letter|note) from [^\n:.]{1,40}[.:]"
    rf"|^(?:please )?(?:{_WORK})\w*\b[^.!?\n]{{0,60}}\s[–—-]{{1,2}}\s",
    re.IGNORECASE | re.MULTILINE,
)
_BELOW = re.compile(
    rf"\b(?:{_WORK})\w*\b[^.!?\n]{{0,40}}\b(?:following|below|this|these)\b(?:[ \t]+(?:{_TEXTS}))?[ \t]*(?:[.!?:]|\n)",
    re.IGNORECASE,
)
_OF_ONESELF = re.compile(
    r"\b(?:about (?:me|myself|us)|of myself|remember|keep in mind|you should know|you to know|note that|"
    r"for your information|"
    r"(?:my|our) (?:own |current |full |linkedin )?(?:profile|bio|cv|r[eé]sum[eé]|curriculum vitae|personal (?:data|details))|"
    r"mi (?:perfil|cv|curr[ií]cul\w+)|mein(?:en|em)? (?:profil|lebenslauf|cv)|mon (?:profil|cv)|meu (?:perfil|cv|curr[ií]culo)|"
    r"sobre m[ií]|de m[ií]|recuerda|recuérda\w*|ten en cuenta|über mich|zu mir|merk\w* dir|denk daran|à propos de moi|sur moi|"
    r"de moi|souviens-toi|retiens|note que|sobre mim|de mim|lembr[ae]\w*|anota que)\b|关于我|我的(?:情况|信息|资料|简历)|记住",
    re.IGNORECASE,
)
"""Words that announce what users say of themselves, in the six languages of the rules."""
_ANNOUNCEMENT = re.compile(r"^[^\n]{1,300}[:：][ \t]*$", re.MULTILINE)
_JSON_BLOCK = re.compile(r"\s*[{\[](?:[^\n]*\n)(?:[ \t]*[\"{}\[\]][^\n]*(?:\n|$))*")
_INTRODUCES = 200
"""Characters before a colon, or before a list, in which such words count."""


def find_foreign_spans(text: str) -> list[Span]:
    """Return the parts of a message that are not the user's own words, in order and without overlaps."""
    injected = injected_spans(text)
    own_data = _find_own_data(text)
    spans = _find_fences(text)
    spans += [match.span() for pattern in (_COMMENT, _LINES) for match in pattern.finditer(text)]
    spans += [match.span() for match in _QUOTED.finditer(text) if _is_statement(match[0])]
    spans = [span for span in spans if _is_outside(span[0], own_data)]
    spans = merge_spans([*injected, *spans, *_find_tagged(text)])
    # A key such as "email": announces no material where the whole block is the user's own data.
    searched = merge_spans([*spans, *own_data])
    starts = [_find_transcript(text, searched), _find_letter(text, searched), _find_material(text, searched)]
    brought_spans = [span for span in find_brought_text(text) if not _introduces(text, span[0])]
    return merge_spans([*spans, *brought_spans, *((start, len(text)) for start in starts if start is not None)])


def cut_spans(text: str, spans: list[Span], start: int, end: int) -> str:
    """Return what of `text[start:end]` lies outside of spans."""
    parts, at = [], start
    for low, high in spans:
        if high <= at or low >= end:
            continue
        parts.append(text[at : max(at, low)])
        at = high
    parts.append(text[at:end] if at < end else "")
    return " ".join(parts)


def _find_fences(text: str) -> list[Span]:
    marks = [match.span() for match in _FENCE.finditer(text)]
    ends = [end for _, end in marks[1::2]] + [len(text)]
    return [(start, end) for (start, _), end in zip(marks[::2], ends, strict=False)]


def _find_tagged(text: str) -> list[Span]:
    spans: list[Span] = []
    at = 0
    for _ in range(_MAX_TAGS):
        opening = _TAG.search(text, at)
        if opening is None:
            break
        name = opening[1] or opening[2]
        closing = f"</{name}>" if opening[1] else f"[/{name}"
        close = text.find(closing, opening.end())
        at = opening.end()
        if close >= 0:
            at = close + len(closing)
            spans.append((opening.start(), at))
        elif name.casefold() in _OPEN_ENDED:
            spans.append((opening.start(), len(text)))
            break
    return spans


def _is_statement(quote: str) -> bool:
    """Return whether a quotation says something, rather than being a name or a title."""
    if len(quote) > _NAME_CHARS or _STATES.search(quote):
        return True
    return len(quote.split()) > _NAME_WORDS or len(_HAN.findall(quote)) > _HAN_NAME


def _is_outside(place: int, spans: list[Span]) -> bool:
    """Return whether a place lies outside of all spans."""
    return not any(start <= place < end for start, end in spans)


def _find_transcript(text: str, spans: list[Span]) -> int | None:
    """Return where a conversation of several speakers begins. A list of facts ("Name: Ana", "Diet: vegan") is none."""
    lines = [match for match in _LABEL.finditer(text) if _is_outside(match.start(), spans)]
    labels = [match[1].casefold().strip() for match in lines]
    first_words = [label.split()[0] for label in labels]
    roles = [match for match, word in zip(lines, first_words, strict=True) if word in _ROLES]
    paired = {word for word in first_words if word in _PAIRED}
    if roles or (len(paired) > 1 and paired & {"user", "you"}):
        return next(m.start() for m, word in zip(lines, first_words, strict=True) if word in _ROLES | _PAIRED)
    repeated = len(set(labels)) > 1 and len(labels) - len(set(labels)) > 0
    talking = [
        match for match in lines if _SAYS_I.search(text[match.end() : text.find("\n", match.end()) % (len(text) + 1)])
    ]
    introduced = bool(lines) and _OF_ONESELF.search(text[: lines[0].start()]) is not None
    if repeated or (len(lines) > 1 and len(talking) > 1 and not introduced):
        return lines[0].start()
    return None


def _find_letter(text: str, spans: list[Span]) -> int | None:
    for pattern in (_LETTER, all_of("letter")):
        for match in pattern.finditer(text):
            if _is_outside(match.start(), spans) and not _introduces(text, match.start()):
                return match.start()
    return None


def _find_material(text: str, spans: list[Span]) -> int | None:
    """Return where material begins that the user wants worked on: what follows "Translate:". Where that is a quotation, code or
    a document of its own, only this is foreign, and the user goes on after it."""
    for pattern in (_TASK, all_of("task"), _BELOW, all_of("below")):
        for match in pattern.finditer(text):
            if not _is_outside(match.end() - 1, spans) or _introduces(text, match.end()):
                continue
            follows = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
            if follows < len(text) and _is_outside(follows, spans):
                return match.end()
    return None


def is_announced(text: str, place: int) -> bool:
    """Return whether a line before a place ends with a colon and announces what users say of themselves."""
    return any(_OF_ONESELF.search(match[0]) for match in _ANNOUNCEMENT.finditer(text, 0, place))


def _find_own_data(text: str) -> list[Span]:
    """Return the blocks of code or JSON that the line before them announces as the user's own data: "my resume in JSON:"."""
    blocks = [(start, end) for start, end in _find_fences(text) if _introduces(text, start)]
    for match in _ANNOUNCEMENT.finditer(text):
        following = _JSON_BLOCK.match(text, match.end())
        if following is not None and _OF_ONESELF.search(match[0]):
            blocks.append(following.span())
    return merge_spans(blocks)


def _introduces(text: str, end: int) -> bool:
    """Return whether the line before a place announces what users say of themselves."""
    line = text[max(0, end - _INTRODUCES) : end].rstrip().rpartition("\n")[2]
    return _OF_ONESELF.search(line) is not None
