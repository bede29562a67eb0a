"""The levels of a content without a language model (seed 002 §1.2): L1, L2 and the stub. Pure, deterministic, no recursion.

What a content is made of (`kind_of`) says which of its lines are worth how much (`outline_of`: JSON, logs, prose, what comes in
rows, code); `outline` takes as many as fit.
"""

from __future__ import annotations

import ast
import collections
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from app.features.paging.keys import DEFINED, LOOKED_AT_CHARS, Family, base_key, defined, family_of
from app.features.paging.outline import (
    MAX_CHARS,
    Group,
    Outline,
    OutlineLine,
    beyond,
    clip,
    count_bounded,
    fitting,
    shorten,
    source_lines,
)
from app.features.paging.values import ContentKind, Counter, Shrunk, terms

# --- JSON: types, sizes, what values there are, the first elements, what names them --------------------------------------

JSON_GROUPS = (
    Group(
        "what fields it has, of which types, and how many elements",
        "{n} of {of} fields of its shape",
        "you need a field that is not shown",
    ),
    Group("its single values", "{n} of {of} single values", "you need a value that is not shown"),
    Group(
        "which elements there are, by name or id",
        "{n} of {of} names of elements",
        "you need an element by its name or id",
    ),
    Group("the first element of each list", "{n} values of first elements", ""),
    Group("", "{n} of {of} values of the other elements", "you need the values of an element that is not shown"),
)
SHAPE, SINGLE, NAME, FIRST_ELEMENT, FURTHER_ELEMENT = range(len(JSON_GROUPS))

MAX_PARSED = MAX_CHARS * 4
"""Characters of a JSON text that is parsed (some 20 ms)."""
MAX_NODES = 20_000
"""Values that are looked at."""
VALUE_CHARS = 160
"""Characters of a value that are shown."""
NAMING = ("id", "name", "key", "title", "slug", "path", "email", "number", "code", "sku", "symbol", "label", "uid")
"""Fields that tell one element from another, best first."""


def parse(text: str) -> Any:
    """The value of a text that is one JSON object or list, or several in lines; None of anything else (or too deep, or
    too long)."""
    plain = text.strip()
    if len(plain) > MAX_PARSED or plain[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(plain)
    except ValueError:
        lines = plain.splitlines()
        if len(lines) < 2:
            return None
        try:
            return [orjson.loads(each) for each in lines if each.strip()]
        except ValueError:
            return None


def json_outline(text: str) -> Outline | None:
    """None where the text is no JSON after all (cut off, say): it is then shortened as prose."""
    value = parse(text)
    if not isinstance(value, dict | list):
        return None
    shape: dict[str, _Field] = {}
    lines: list[OutlineLine] = []
    todo: list[tuple[str, str, Any, int]] = [("", "$", value, SINGLE)]
    nodes = 0
    while todo and nodes < MAX_NODES:
        generic, place, item, group = todo.pop()
        nodes += 1
        shape.setdefault(generic, _Field()).add(item)
        if isinstance(item, Mapping):
            names = [
                each for each in NAMING if generic.endswith("[]") and isinstance(item.get(each), str | int | float)
            ]
            if names:
                told = ", ".join(f"{each} = {_plain(item[each])}" for each in names)
                lines.append(OutlineLine(f"{_at(place)}: {told}", NAME))
                item = {key: each for key, each in item.items() if key not in names}
            todo += [(f"{generic}.{key}", f"{place}.{key}", each, group) for key, each in reversed(list(item.items()))]
        elif isinstance(item, list):
            todo += _elements(generic, place, item, group)
        else:
            lines.append(OutlineLine(f"{_at(place)} = {_plain(item)}", group))
    left = None if not todo else f"all after the first {MAX_NODES:,} values"
    fields = [
        OutlineLine(f"{generic.removeprefix('.') or '$'}: {field.told()}", SHAPE) for generic, field in shape.items()
    ]
    return Outline((), JSON_GROUPS, [*fields, *lines], left)


def _elements(generic: str, place: str, items: list[Any], group: int) -> list[tuple[str, str, Any, int]]:
    """Elements of a list to look at, last one first (they are popped)."""
    first = FIRST_ELEMENT if group == SINGLE else group
    found = [
        (f"{generic}[]", f"{place}[{i}]", each, FURTHER_ELEMENT if i else first)
        for i, each in enumerate(items[:MAX_NODES])
    ]
    return found[::-1]


def _at(place: str) -> str:
    """A place without the root: `items[3].name`."""
    return place.removeprefix("$").removeprefix(".") or "$"


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    folded = " ".join(text[: VALUE_CHARS * 2].split())
    return folded if len(folded) <= VALUE_CHARS else folded[: VALUE_CHARS - 1] + "…"


class _Field:
    """What is known of all values at one place of the shape."""

    MOST_VALUES = 6
    """Different values that are told: more of them are not an enumeration."""

    def __init__(self) -> None:
        self.types: dict[str, None] = {}
        self.sizes: list[int] = []
        self.values: dict[str, int] = {}
        self.low: float | None = None
        self.high: float | None = None
        self.seen = 0

    def add(self, value: object) -> None:
        self.seen += 1
        kind = {"dict": "object", "list": "list", "str": "text", "NoneType": "null", "bool": "bool"}.get(
            type(value).__name__, "number"
        )
        self.types.setdefault(kind)
        if isinstance(value, list):
            self.sizes.append(len(value))
        elif isinstance(value, str | bool) and len(self.values) <= self.MOST_VALUES:
            short = str(value)[:40]
            self.values[short] = self.values.get(short, 0) + 1
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    def told(self) -> str:
        told = "|".join(self.types)
        if self.sizes:
            least, most = min(self.sizes), max(self.sizes)
            told += f" of {most}" if least == most else f" of {least}–{most}"
        if self.seen > 1:
            if self.low is not None and self.low != self.high:
                told += f" {_short(self.low)}–{_short(self.high)}"
            if 1 < len(self.values) <= self.MOST_VALUES < self.seen:
                told += ": " + ", ".join(f"{value} ({times})" for value, times in self.values.items())
        return told


def _short(number: float | None) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)[:24]


# --- logs and command output: errors, the first and the last lines, one of each kind of line, counts ---------------------

LOG_GROUPS = (
    Group("how it ended", "{n} of the last lines", ""),
    Group(
        "which errors there are, one of each kind", "{n} of {of} kinds of errors", "you need an error that is not shown"
    ),
    Group(
        "what stands around each error",
        "{n} of {of} lines around errors",
        "you need the lines around an error, or a whole traceback",
    ),
    Group(
        "which warnings there are, one of each kind",
        "{n} of {of} kinds of warnings",
        "you need a warning that is not shown",
    ),
    Group("how it began", "{n} of the first lines", ""),
    Group("one line of each kind", "{n} of {of} kinds of lines", "you need a line of a kind that is not shown"),
    Group("", "{n} of {of} lines that repeat a kind", "you need every line, their times or their exact values"),
)
LAST, ERROR, AROUND, WARNING, FIRST_OF_KIND, KIND, OTHER_LINE = range(len(LOG_GROUPS))

ENDS = 3
"""Lines that are the beginning and the end of a log."""
CONTEXT = 2
"""Lines on each side of an error that belong to it."""

ERRORS = re.compile(
    r"(?<![A-Za-z0-9=/-])(?:error|err|fatal|critical|panic|exception|failed|failure|fail"
    r"|traceback|segfault|denied|refused|timed? ?out|abort(?:ed)?|killed|oom)(?![A-Za-z-])"
    r"|\b[A-Z]\w{2,60}(?:Error|Exception)\b|npm ERR!|\bE\d{4}\b|[✗✘×]",
    re.IGNORECASE,
)
"""A line that tells of an error."""
WARNINGS = re.compile(r"\bwarn(?:ing)?s?\b|\bdeprecat", re.IGNORECASE)
_NONE = re.compile(r"\b(?:0|no) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE)
_LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b", re.IGNORECASE)
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+(?:[.:,T/-]\d+)*|\"[^\"]{0,200}\"|'[^']{0,200}'", re.IGNORECASE)
_TEMPLATE_CHARS = 200
"""Characters of a line by which its kind is known."""


def log_outline(text: str) -> Outline:
    lines, first = source_lines(text)
    kinds = [template(each) for each in lines]
    often = collections.Counter(kinds)
    groups = [OTHER_LINE] * len(lines)
    errors = [bad(each) for each in lines]
    seen: set[str] = set()
    for i, line in enumerate(lines):
        if kinds[i] not in seen:
            seen.add(kinds[i])
            groups[i] = ERROR if errors[i] else WARNING if WARNINGS.search(line[:400]) else KIND
    for i in [i for i, group in enumerate(groups) if group == ERROR]:
        for near in range(max(0, i - CONTEXT), min(len(lines), i + CONTEXT + 1)):
            if groups[near] > AROUND:
                groups[near] = AROUND
    real = [i for i, line in enumerate(lines) if line.strip()]
    for i in real[:ENDS]:
        groups[i] = min(groups[i], FIRST_OF_KIND)
    for i in real[-ENDS:]:
        groups[i] = LAST
    # Of an error or a kind the rarest come first: what happened once is news.
    made = [OutlineLine(lines[i].rstrip(), groups[i], first + i, -float(often[kinds[i]])) for i in real]
    return Outline((_counts(lines, errors, often, len(real)),), LOG_GROUPS, made, beyond(text))


def template(line: str) -> str:
    """A line without what varies from one to the next of its kind: numbers, times, ids, quoted words."""
    return _VARIABLE.sub("#", line[:_TEMPLATE_CHARS]).strip()


def bad(line: str) -> bool:
    """Whether a line tells of an error ("0 errors" does not)."""
    seen = line[:400]
    return ERRORS.search(seen) is not None and (
        _NONE.search(seen) is None or ERRORS.search(_NONE.sub("", seen)) is not None
    )


def _counts(lines: list[str], errors: list[bool], often: collections.Counter[str], total: int) -> str:
    levels = collections.Counter(
        match[1].upper().replace("WARNING", "WARN")
        for each in lines
        if (match := _LEVEL.search(each[:_TEMPLATE_CHARS]))
    )
    told = [f"{total} lines of {len(often)} kinds"]
    told += [f"{level} {number}" for level, number in levels.most_common()]
    if "ERROR" not in levels and any(errors):
        told.append(f"errors {sum(errors)}")
    most, times = max(often.items(), key=lambda each: each[1], default=("", 0))
    if times > 3:
        told.append(f"most often ({times}): {most[:80]}")
    return "; ".join(told)


# --- prose: headings, the beginning of each part, the sentences with the weightiest words --------------------------------

PROSE_GROUPS = (
    Group("what it is about and how it is divided", "{n} of {of} headings", ""),
    Group("how each part begins", "{n} of {of} first sentences", "you need a part of which nothing is shown"),
    Group(
        "its weightiest statements",
        "{n} of {of} weighty sentences",
        "you need a detail, a number or a name that is not shown",
    ),
    Group("", "{n} of {of} other sentences", "you need its exact words"),
)
HEADING, LEAD, SALIENT, OTHER_SENTENCE = range(len(PROSE_GROUPS))

SALIENT_SHARE = 0.3
"""The share of sentences that count as weighty."""
SENTENCE_CHARS = 400
"""Longest sentence, characters; a longer one is cut in pieces."""
FIGURE = 0.5
"""What a figure in a sentence adds, as a part of its mean word: details are asked for, adjectives are not."""

_END = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“(\[]?[A-Z0-9À-Þ])")
_HEADING = re.compile(r"#{1,6}\s|[A-Z][^.!?]{2,70}:?\s*\Z|[-=]{4,}\s*\Z")
_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s")


def prose_outline(text: str) -> Outline:
    lines, first = source_lines(text)
    units: list[tuple[str, int, bool, bool]] = []  # text, line, heading, opens a part
    opens = True
    for i, line in enumerate(lines):
        if not line.strip():
            opens = True
            continue
        if _HEADING.match(line) and (line.startswith("#") or opens) and not _BULLET.match(line):
            units.append((line.rstrip(), first + i, True, False))
            opens = True
            continue
        for piece in sentences(line):
            units.append((piece, first + i, False, opens))
            opens = False
    weights = salience([each[0] for each in units])
    ranked = sorted((i for i, each in enumerate(units) if not each[2] and not each[3]), key=lambda i: (-weights[i], i))
    weighty = set(ranked[: int(len(units) * SALIENT_SHARE) + 1])
    made = []
    for i, (piece, at, heading, lead) in enumerate(units):
        group = HEADING if heading else LEAD if lead else SALIENT if i in weighty else OTHER_SENTENCE
        made.append(OutlineLine(piece, group, at, weights[i] if group in (SALIENT, OTHER_SENTENCE) else 0.0))
    return Outline((), PROSE_GROUPS, made, beyond(text))


def sentences(line: str) -> list[str]:
    """The sentences of a line, long ones in pieces."""
    found: list[str] = []
    for piece in _END.split(line.strip()):
        found += [piece[at : at + SENTENCE_CHARS] for at in range(0, len(piece), SENTENCE_CHARS)]
    return [each for each in found if each.strip()]


def salience(pieces: list[str]) -> list[float]:
    """What each sentence weighs: the mean number of times that its words come up in the whole, more for a figure in it.

    What a text is about it says again and again (Luhn 1958); a sentence of such words tells most of it.
    """
    words = [terms(each) for each in pieces]
    often = collections.Counter(word for each in words for word in set(each))
    weights = []
    for piece, each in zip(pieces, words, strict=True):
        # 2: a short sentence is not the weightiest.
        mean = sum(often[word] for word in set(each)) / (len(set(each)) + 2)
        weights.append(mean * (1.0 + FIGURE * any(c.isdigit() for c in piece)))
    return weights


# --- tables --------------------------------------------------------------------------------------------------------------

TABLE = (
    Group(
        "its columns, their ranges and how many rows it has",
        "{n} of {of} columns' ranges",
        "you need the range of a column",
    ),
    Group("its first and last rows", "{n} of the first and last rows", ""),
    Group("", "{n} of {of} further rows", "you need a row that is not shown, or a sum over all rows"),
)
COLUMN, END_ROW, ROW = range(len(TABLE))
END_ROWS = 3
"""Rows at each end that are shown first."""
MAX_COLUMNS = 60
"""Columns that are described."""
_SPLITS = ("\t", "|", ",", ";")
_RULE = re.compile(r"[\s|+:=-]+\Z")


def separator(lines: list[str]) -> str | None:
    """What parts the columns of these lines; None where they are no table."""
    sample = [each for each in lines[:40] if each.strip() and not _RULE.match(each)]
    if len(sample) < 3:
        return None
    for split in _SPLITS:
        counts = collections.Counter(each.count(split) for each in sample)
        times, number = max((number, times) for times, number in counts.items())[::-1]
        if times >= (2 if split in ",;" else 1) and number >= 0.9 * len(sample):
            return split
    return None


def table(text: str) -> Outline | None:
    lines, first = source_lines(text)
    split = separator(lines)
    if split is None:
        return None
    rows = [(i, _cells(line, split)) for i, line in enumerate(lines) if line.strip() and not _RULE.match(line)]
    names, body = rows[0][1], rows[1:]
    made = [
        OutlineLine(_column(name, [cells[i] for _, cells in body if i < len(cells)]), COLUMN)
        for i, name in enumerate(names[:MAX_COLUMNS])
    ]
    ends = {i for i, _ in body[:END_ROWS]} | {i for i, _ in body[-END_ROWS:]}
    made += [OutlineLine(lines[i].strip(), END_ROW if i in ends else ROW, first + i) for i, _ in body]
    head = f"table: {len(body)} rows, {len(names)} columns ({clip(', '.join(names))})"
    return Outline((head,), TABLE, made, beyond(text))


def _cells(line: str, split: str) -> list[str]:
    plain = line.strip().strip("|") if split == "|" else line
    return [each.strip().strip('"') for each in plain.split(split)]


def _column(name: str, cells: list[str]) -> str:
    filled = [each for each in cells if each]
    numbers = [number for each in filled if (number := _number(each)) is not None]
    empty = f", {len(cells) - len(filled)} empty" if len(filled) < len(cells) else ""
    if filled and len(numbers) == len(filled):
        return f"{clip(name, 60)}: {min(numbers):.10g} to {max(numbers):.10g}, sum {sum(numbers):.10g}{empty}"
    often = collections.Counter(filled)
    if len(often) <= max(6, len(filled) // 20):
        told = ", ".join(f"{clip(value, 40)} ({times})" for value, times in often.most_common(8))
        return f"{clip(name, 60)}: {told}{empty}"
    return f"{clip(name, 60)}: {len(often)} different, {clip(min(filled), 40)} to {clip(max(filled), 40)}{empty}"


def _number(cell: str) -> float | None:
    plain = cell.removeprefix("$").removesuffix("%").replace(",", "")
    if len(plain) > 24 or not re.fullmatch(r"[+-]?\d+(?:\.\d+)?", plain):
        return None
    return float(plain)


# --- diffs ---------------------------------------------------------------------------------------------------------------

DIFF = (
    Group("which files it changes, and by how much", "{n} of {of} files", "you need a file that is not shown"),
    Group("where in the files the changes are", "{n} of {of} places", ""),
    Group("every changed line", "{n} of {of} changed lines", "you need the changed lines themselves"),
    Group("", "{n} unchanged lines around the changes", "you need the lines around a change"),
)
FILE, HUNK, CHANGED, UNCHANGED = range(len(DIFF))
_FILE = re.compile(r"(?:diff --git a/(\S+)|\+\+\+ (?:b/)?(\S+)|Index: (\S+)|\*\*\* (?:Update|Add|Delete) File: (\S+))")


def diff(text: str) -> Outline:
    lines, first = source_lines(text)
    made: list[OutlineLine] = []
    stats: dict[str, list[int]] = {}
    file = "?"
    for i, line in enumerate(lines):
        if found := _FILE.match(line[:400]):
            file = next((each for each in found.groups() if each), "?")
            stats.setdefault(file, [0, 0])
        elif line.startswith("@@"):
            made.append(OutlineLine(line, HUNK, first + i))
        elif line[:1] in ("+", "-") and not line.startswith(("+++", "---")):
            stats.setdefault(file, [0, 0])[line[0] == "-"] += 1
            made.append(OutlineLine(line, CHANGED, first + i))
        elif line.strip() and not line.startswith(
            ("index ", "---", "new file", "deleted file", "similarity", "rename")
        ):
            made.append(OutlineLine(line, UNCHANGED, first + i))
    files = [OutlineLine(f"{name}: +{plus} −{minus}", FILE) for name, (plus, minus) in stats.items()]
    plus, minus = (sum(each[side] for each in stats.values()) for side in (0, 1))
    return Outline((f"diff: {len(stats)} files, +{plus} −{minus} lines",), DIFF, [*files, *made], beyond(text))


# --- listings and search results -----------------------------------------------------------------------------------------

LISTING = (
    Group(
        "which files and folders there are, with counts",
        "{n} of {of} folders or files with their counts",
        "you need a file or folder that is not shown",
    ),
    Group("the first entry or match of each", "{n} of {of} first entries", ""),
    Group("", "{n} of {of} further entries or matches", "you need every entry or match"),
)
PLACE, FIRST_ENTRY, ENTRY = range(len(LISTING))
MATCH = re.compile(r"([^\s:][^:\n]{0,200}?):(\d{1,7})[:-](.*)")
"""A line of a search's result: file, line number, text."""


def listing(text: str) -> Outline:
    lines, first = source_lines(text)
    places: collections.Counter[str] = collections.Counter()
    made: list[OutlineLine] = []
    matched = 0
    place = "."
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        if found := MATCH.match(line[:400]):
            matched += 1
            place = found[1]
        elif line.endswith(":") and " " not in line:  # ls -R
            place = line[:-1]
            continue
        elif "/" in line:
            place = line.split()[-1].rpartition("/")[0] or "/"
        made.append(OutlineLine(line.rstrip(), ENTRY if places[place] else FIRST_ENTRY, first + i))
        places[place] += 1
    what = "matches" if matched > len(made) // 2 else "entries"
    kinds = collections.Counter(
        each.text.rpartition(".")[2][:12] for each in made if re.search(r"\w\.\w{1,5}$", each.text)
    )
    told = f"{len(made)} {what} in {len(places)} {'files' if what == 'matches' else 'folders'}"
    if what == "entries" and kinds:
        told += "; " + ", ".join(f".{kind} {number}" for kind, number in kinds.most_common(6))
    counted = [OutlineLine(f"{clip(name, 120)}: {number}", PLACE, 0, float(number)) for name, number in places.items()]
    return Outline((told,), LISTING, [*counted, *made], beyond(text))


# --- code: imports, classes, signatures, first words of documentation, what is raised and returned -----------------------
#
# Python by its syntax tree where it parses; everything else by the lines that common languages begin their definitions with.

CODE_GROUPS = (
    Group(
        "which classes and functions it has, and their signatures",
        "{n} of {of} lines with signatures",
        "you need a signature that is not shown",
    ),
    Group("what each of them is for, as its documentation says", "{n} lines of documentation", ""),
    Group("its constants and settings", "{n} of {of} lines with constants", "you need the value of a constant"),
    Group("what it imports", "{n} lines of imports", "you need to know what it imports"),
    Group(
        "what its functions return and raise",
        "{n} of {of} lines that return or raise",
        "you need to know what a function returns or raises",
    ),
    Group("", "bodies: {n} of {of} lines", "you need the body of a function, or mean to edit the file"),
)
SIGNATURE, DOC, CONSTANT, IMPORT, EXIT, BODY = range(len(CODE_GROUPS))

CONFIG_GROUPS = (
    Group("which sections it has", "{n} of {of} names of sections", "you need a section that is not shown"),
    Group("the settings in each section, one level deep", "{n} of {of} settings", "you need the value of a setting"),
    Group(
        "", "{n} of {of} lines with nested settings and comments", "you need a nested setting, or mean to edit the file"
    ),
)

MAX_PARSED_CHARS = 200_000
"""Longer Python is read by its lines: the parser takes some 10 ms per 1,000 lines, and a deep nest is hostile, not code."""
MAX_DEPTH = 200
"""Brackets open at once, or blanks of indentation by two, in code that is given to the parser."""
DOC_LINES = 2
"""Lines of a piece of documentation that are taken for its lead."""

_PARSER = threading.Lock()
"""One thread at a time: CPython 3.11 counts how deep all of them are together, and fails (SystemError, gh-106905)."""

_IMPORT = re.compile(
    r"\s*(?:import\b|from\s+\S+\s+import\b|#include\b|using\s+[\w.:]+\s*;|use\s+[\w:]+|require\b"
    r"|package\s|const \w+ = require\()"
)
_CONSTANT = re.compile(
    r"(?:export\s+|pub\s+|public\s+|private\s+|static\s+|final\s+)*(?:const|let|var|val|#define)?\s*[A-Z][A-Z0-9_]{2,}\b[^(]{0,80}[=:]|#define\s"
)
_EXIT = re.compile(r"\s*(?:return|raise|throw|yield|panic!?|reject|res\.status|next)\b")
_COMMENT = re.compile(r"\s*(?://|#(?!include|define|!\[)|/\*|\*(?!\w)|--\s|\"\"\"|''')")
_METHOD = re.compile(
    r"\s{0,12}(?:(?:public|private|protected|internal|static|async|final|override|virtual|get|set|inline|const|export|default)\s+){0,5}"
    r"(?:[\w<>\[\],.?*&:]{1,60}\s+)?[A-Za-z_$~][\w$]{0,80}\s?\([^;]{0,200}\)?[^;=]{0,80}\{\s*$"
)
_ARROW = re.compile(
    r"\s*(?:export\s+)?(?:const|let|var)\s+[\w$]{1,80}\s*(?::[^=]{1,80})?=\s*(?:async\s*)?(?:\([^)]{0,200}\)|\w{1,40})(?:\s*:[^=]{1,80})?\s*=>"
)
_ROUTE = re.compile(
    r"\s*(?:@[A-Za-z_][\w.]{0,80}|(?:app|router)\.(?:get|post|put|delete|patch|use)\()|\s*(?:CREATE|ALTER|DROP)\s",
    re.IGNORECASE,
)
_NOT_METHOD = re.compile(r"\s*(?:if|else|for|while|switch|catch|return|do|try|with|elif|match|when|unless|until)\b")

LANGUAGES = {
    "py": "Python", "pyi": "Python", "ts": "TypeScript", "tsx": "TypeScript", "js": "JavaScript", "jsx": "JavaScript",
    "mjs": "JavaScript", "go": "Go", "rs": "Rust", "java": "Java", "kt": "Kotlin", "c": "C", "h": "C", "cc": "C++",
    "cpp": "C++", "hpp": "C++", "cs": "C#", "rb": "Ruby", "php": "PHP", "swift": "Swift", "scala": "Scala", "sh": "shell",
    "bash": "shell", "sql": "SQL", "lua": "Lua", "ex": "Elixir", "exs": "Elixir", "vue": "Vue", "svelte": "Svelte",
    "css": "CSS", "scss": "CSS", "html": "HTML", "tf": "Terraform", "proto": "Protobuf", "dart": "Dart", "pl": "Perl",
}  # fmt: skip
"""Languages by a file's ending."""
CONFIGS = {
    "yaml": "YAML", "yml": "YAML", "toml": "TOML", "ini": "INI", "cfg": "INI", "conf": "settings", "env": "settings",
    "properties": "settings", "editorconfig": "settings",
}  # fmt: skip
"""Files of settings by their ending."""


def code_outline(text: str, language: str | None) -> Outline:
    lines, first = source_lines(text)
    groups = _python(lines) if language in ("Python", None) else None
    if groups is None:
        groups = _code_by_lines(lines)
    made = [
        # What stands outermost comes first: a class before its methods.
        OutlineLine(line, group, first + i, -float(len(line) - len(line.lstrip())) if group == SIGNATURE else 0.0)
        for i, (line, group) in enumerate(zip(lines, groups, strict=True))
        if line.strip()
    ]
    return Outline((), CODE_GROUPS, made, beyond(text))


def config(text: str) -> Outline:
    """Settings (YAML, TOML, INI and their like): by how far a line is indented."""
    lines, first = source_lines(text)
    made: list[OutlineLine] = []
    for i, line in enumerate(lines):
        if plain := line.strip():
            indent = len(line) - len(line.lstrip())
            inner = plain.startswith(("#", ";", "//"))
            section = (indent == 0 and plain.endswith(":")) or plain.startswith("[")
            group = 2 if inner else 0 if section else 1 if indent <= 2 else 2
            made.append(OutlineLine(line.rstrip(), group, first + i))
    return Outline((), CONFIG_GROUPS, made, beyond(text))


def _python(lines: list[str]) -> list[int] | None:
    """The group of each line; None where it is not Python, or not all of it."""
    source = "\n".join(lines)
    if len(source) > MAX_PARSED_CHARS or _deep(source):
        return None
    try:
        with _PARSER, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the user's own code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None
    if not any(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
        for each in tree.body
    ):
        return None
    groups = [BODY] * len(source.split("\n"))
    # splitlines knows more ends of lines than the parser does (form feeds): the numbers would not match.
    if len(groups) != len(lines):
        return None
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        todo += ast.iter_child_nodes(node)
        _mark(node, groups)
    return groups


def _mark(node: ast.AST, groups: list[int]) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        _set(groups, begin, max(node.lineno, node.body[0].lineno - 1), SIGNATURE)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        _set(groups, node.lineno, node.end_lineno or node.lineno, IMPORT)
    elif isinstance(node, ast.Return | ast.Raise):
        _set(groups, node.lineno, node.lineno, EXIT)
    if isinstance(node, ast.Module):
        for each in node.body:
            if isinstance(each, ast.Assign | ast.AnnAssign):
                _set(groups, each.lineno, each.lineno, CONSTANT)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            last = min(first.end_lineno or first.lineno, first.lineno + DOC_LINES - 1)
            _set(groups, first.lineno, last, DOC)


def _set(groups: list[int], first: int, last: int, group: int) -> None:
    """Lines first to last (from 1) belong to it, unless they belong to something better."""
    for line in range(first - 1, min(last, len(groups))):
        groups[line] = min(groups[line], group)


def _code_by_lines(lines: list[str]) -> list[int]:
    groups: list[int] = []
    commented = 0
    for line in lines:
        seen = line[:400]
        if _COMMENT.match(seen):
            commented += 1
            groups.append(DOC if commented <= DOC_LINES else BODY)
            continue
        commented = 0
        if _IMPORT.match(seen):
            groups.append(IMPORT)
        elif (
            DEFINED.match(seen)
            or _ARROW.match(seen)
            or _ROUTE.match(seen)
            or (_METHOD.match(seen) and not _NOT_METHOD.match(seen))
        ):
            groups.append(SIGNATURE)
        elif _CONSTANT.match(seen):
            groups.append(CONSTANT)
        elif _EXIT.match(seen):
            groups.append(EXIT)
        else:
            groups.append(BODY)
    return groups


def _deep(source: str) -> bool:
    """Whether it nests deeper than code does (the parser recurses)."""
    depth = most = 0
    for each in re.findall(r"[(\[{]|[)\]}]", source):
        depth += 1 if each in "([{" else -1
        most = max(most, depth)
    widest = max((len(each) - len(each.lstrip(" \t")) for each in source.split("\n") if each.strip()), default=0)
    return most > MAX_DEPTH or widest > MAX_DEPTH * 2


# --- the levels, by what a content is made of ----------------------------------------------------------------------------

L1_RATIO = 0.30
"""Tokens of L1, as a part of L0's (seed 002 §1.2: "~30% of original")."""
L2_RATIO = 0.05
"""The same of L2 ("~5% of original")."""
L1_FLOOR = 120
"""Tokens that L1 may have however short L0 is: below this there is nothing but a heading."""
L2_FLOOR = 64
"""The same of L2: a stub and its declared losses cost nearly as much."""
L1_CEILING = 6_000
"""Most tokens of L1: 30 % of a huge result would fill the window by themselves."""
L2_CEILING = 600
"""Most tokens of L2."""
STUB_TOKENS = 48
"""Most tokens of a stub."""
STUB_NAMES = 6
"""Names in a stub."""

_TEXTS = frozenset(["md", "txt", "rst", "adoc", "markdown", "org"])
_TABLES = frozenset(["csv", "tsv"])
_LOGS = frozenset(["log", "out", "err"])
_DIFFS = frozenset(["diff", "patch"])
_DIFF = re.compile(r"^(?:diff --git |@@ -\d|\*\*\* (?:Begin Patch|Update File))", re.MULTILINE)
_LOGGED = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\d{1,3}(?:\.\d{1,3}){3} "
    r"|(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|\d{10,13}\b)"
)
_CODED = re.compile(
    r"[;{}]\s*(?://.*)?$"
    r"|^\s*(?:@\w|import |from \S+ import|#include|return\b|if .*:$|for .*:$|const |let |var |fn |func |pub |SELECT |CREATE "
    r"|def \w|class \w|while .*:$|[\w.]+(?:: \w+)? [-+*/]?= )"
)
_PLACED = re.compile(r"\s*(?:[d-][rwx-]{9}\S*\s.*|[├└│─\s|`+-]*(?:[\w.@ -]*/)*[\w.@-]+(?:/|\.\w{1,8})?)\s*\Z")


class Shrunken(NamedTuple):
    """What `shrink` makes of a content. `fault_when`: of L2, whose reader lacks the most; L1's reasons are among them
    or fewer."""

    detailed: Shrunk
    compact: Shrunk
    fault_when: tuple[str, ...]


def kind_of(text: str, tool: str | None = None, key: str | None = None) -> ContentKind:
    """What a content is made of: by its file's ending where it is a file's, else by its lines, else by the tool."""
    family = family_of(tool) if tool else Family.OTHER
    ending = "" if family in (Family.SEARCH, Family.LIST, Family.PLAN) else _ending(key)
    seen = text[:LOOKED_AT_CHARS]
    if parse(text) is not None:
        return ContentKind.JSON
    if ending in _DIFFS or _DIFF.search(seen):
        return ContentKind.DIFF
    if ending in _TEXTS:
        return ContentKind.PROSE
    lines = [each for each in source_lines(seen)[0] if each.strip()][:400]
    if ending in _TABLES and separator(lines):
        return ContentKind.TABLE
    if ending in _LOGS:
        return ContentKind.LOG
    if ending in LANGUAGES or ending in CONFIGS:
        return ContentKind.CODE
    return _by_lines(lines, family)


def _by_lines(lines: list[str], family: Family) -> ContentKind:
    if not lines:
        return ContentKind.PROSE

    def share(fits: Callable[[str], object], chars: int = 400) -> float:
        return sum(1 for each in lines if fits(each[:chars])) / len(lines)

    if share(_LOGGED.match, LOOKED_AT_CHARS) >= 0.3:
        return ContentKind.LOG
    if family in (Family.LIST, Family.SEARCH) or share(MATCH.match) >= 0.6:
        return ContentKind.LISTING
    coded = share(_CODED.search)
    if len(lines) >= 3 and coded < 0.3 and separator(lines):
        return ContentKind.TABLE
    if coded >= 0.25:
        return ContentKind.CODE
    if len(lines) >= 5 and share(_PLACED.match, 200) >= 0.7:
        return ContentKind.LISTING
    return ContentKind.LOG if family == Family.SHELL else ContentKind.PROSE


def language_of(key: str | None) -> str | None:
    ending = _ending(key)
    return LANGUAGES.get(ending) or CONFIGS.get(ending)


def outline_of(text: str, kind: ContentKind, key: str | None = None) -> Outline:
    """The lines of a content by worth; what proves to be something else than it seemed is taken for prose."""
    made: Outline | None
    if kind == ContentKind.CODE:
        made = config(text) if _ending(key) in CONFIGS else code_outline(text, language_of(key))
    else:
        made = _OUTLINES[kind](text)
    return made if made is not None and made.lines else prose_outline(text)


_OUTLINES: Mapping[ContentKind, Callable[[str], Outline | None]] = {
    ContentKind.LOG: log_outline,
    ContentKind.JSON: json_outline,
    ContentKind.TABLE: table,
    ContentKind.DIFF: diff,
    ContentKind.LISTING: listing,
    ContentKind.PROSE: prose_outline,
}


def room_detailed(tokens: int) -> int:
    """Most tokens of L1 of a content of so many."""
    return min(tokens, max(L1_FLOOR, min(L1_CEILING, int(tokens * L1_RATIO))))


def room_compact(tokens: int) -> int:
    """Most tokens of L2 of a content of so many."""
    return min(tokens, max(L2_FLOOR, min(L2_CEILING, int(tokens * L2_RATIO))))


def shrink(text: str, kind: ContentKind, count: Counter, key: str | None = None, tokens: int | None = None) -> Shrunken:
    """L1 and L2 of a content of `tokens` tokens (counted when not given), each never larger than the level above.

    For jobs: some 10 ms per 10,000 tokens, most of it counting.
    """
    total = count_bounded(text, count) if tokens is None else tokens
    made = outline_of(text, kind, key)
    detailed, kept, _ = shorten(made, room_detailed(total), count)
    compact, _, ask = shorten(made, min(detailed.tokens, room_compact(total)), count, above=kept)
    return Shrunken(detailed, compact, ask)


def stub(text: str, kind: ContentKind, count: Counter, tool: str | None = None, key: str | None = None) -> str:
    """L3, one line: tool, key, size, and what it is. "Read src/auth.ts (200 lines, TypeScript: authMiddleware,
    verifyToken)"."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
    about = _about(text, kind, key)
    name = " ".join((tool or "Text").split())[:40]
    what = f"{name} {clip(key, 100)}" if key else name
    return fitting(" ".join(f"{what} ({size}, {about})".split()), STUB_TOKENS, count)


def _about(whole: str, kind: ContentKind, key: str | None) -> str:
    text = whole[:LOOKED_AT_CHARS]
    if kind == ContentKind.CODE:
        names = defined(text)[:STUB_NAMES]
        named = language_of(key) or "code"
        return f"{named}: {', '.join(names)}" if names else named
    if kind == ContentKind.PROSE:
        first = next((each.strip("# ").strip() for each in text.splitlines() if each.strip("# -=").strip()), "")
        return f"text: “{clip(first, 80)}”"
    if kind == ContentKind.LOG:
        # An output says at its end what came of it.
        lines, _ = source_lines(text if text == whole else f"{text}\n{whole[-LOOKED_AT_CHARS:]}")
        worst = next((each.strip() for each in lines if bad(each)), None)
        last = next((each.strip() for each in reversed(lines) if each.strip()), "")
        return f"output, with errors: {clip(worst, 80)}" if worst else f"output, ends: {clip(last, 60)}"
    if kind == ContentKind.JSON:
        value = parse(text)
        if isinstance(value, list):
            return f"JSON, {len(value)} elements"
        fields = [str(each) for each in list(value)[:STUB_NAMES]] if isinstance(value, dict) else []
        return f"JSON: {clip(', '.join(fields), 80)}" if fields else "JSON"
    made = outline_of(text, kind)
    return clip(made.head[0], 100) if made.head else kind.value


def _ending(key: str | None) -> str:
    if not key:
        return ""
    name = base_key(key.partition("?")[0].partition("#")[0]).rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name and " " not in name else ""
