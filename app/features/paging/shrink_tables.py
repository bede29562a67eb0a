"""What comes in rows: tables, diffs, listings and search results, by their columns, files and counts. Pure."""

from __future__ import annotations

import re
from collections import Counter

from app.features.paging.outline import Group, Outline, OutlineLine, beyond, clip, source_lines

# --- tables ----------------------------------------------------------------------------------------------------------

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
        counts = Counter(each.count(split) for each in sample)
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
    often = Counter(filled)
    if len(often) <= max(6, len(filled) // 20):
        told = ", ".join(f"{clip(value, 40)} ({times})" for value, times in often.most_common(8))
        return f"{clip(name, 60)}: {told}{empty}"
    return f"{clip(name, 60)}: {len(often)} different, {clip(min(filled), 40)} to {clip(max(filled), 40)}{empty}"


def _number(cell: str) -> float | None:
    plain = cell.removeprefix("$").removesuffix("%").replace(",", "")
    if len(plain) > 24 or not re.fullmatch(r"[+-]?\d+(?:\.\d+)?", plain):
        return None
    return float(plain)


# --- diffs -----------------------------------------------------------------------------------------------------------

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


# --- listings and search results -------------------------------------------------------------------------------------

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
    places: Counter[str] = Counter()
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
    kinds = Counter(each.text.rpartition(".")[2][:12] for each in made if re.search(r"\w\.\w{1,5}$", each.text))
    told = f"{len(made)} {what} in {len(places)} {'files' if what == 'matches' else 'folders'}"
    if what == "entries" and kinds:
        told += "; " + ", ".join(f".{kind} {number}" for kind, number in kinds.most_common(6))
    counted = [OutlineLine(f"{clip(name, 120)}: {number}", PLACE, 0, float(number)) for name, number in places.items()]
    return Outline((told,), LISTING, [*counted, *made], beyond(text))
