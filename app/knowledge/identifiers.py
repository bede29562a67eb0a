"""Regular expressions that tell keys apart, written by an operator: only such as end in a short time, whatever they are given.

Python's matcher goes back and forth: a repetition within a repetition, or a choice within one, may take a time that doubles
with each character. Such patterns, and those that look around or back, are refused: no key of a table needs them. Pure.
"""

from __future__ import annotations

import re

MAX_PATTERN_CHARS = 200
MAX_REPEATS = 3
"""Repetitions of no fixed number: with three, time grows with the third power of a mention's length at most."""
MAX_OPTIONALS = 8

_DOUBTFUL = re.compile(r"(?<!\\)\[|--|&&|\|\||~~")
"""Of which Python says that it may mean something else one day."""
_TOKEN = re.compile(
    r"""
      \\(?P<escaped>.)
    | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?P<special>:|.))?)
    | (?P<close>\))
    | (?P<choice>\|)
    | (?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})[?+]?
    | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def pattern_trouble(pattern: str) -> str | None:
    """What is wrong with a pattern; None: nothing."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"is longer than {MAX_PATTERN_CHARS} characters"
    if slow := _slow(pattern):
        return slow
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    return "matches the empty text" if compiled.fullmatch("") else None


def _slow(pattern: str) -> str | None:
    """What may keep a matcher busy. Each open group notes whether it holds a repetition or a choice."""
    groups = [False]
    closed = False  # of the group that ended just now
    repeats = optionals = 0
    for token in _TOKEN.finditer(pattern):
        if token["escaped"] and token["escaped"].isdigit():
            return "refers back to a group: repeat what it is"
        if token["plain"] == "[":
            return "is no regular expression: a set is not closed"
        if token["set"] and _DOUBTFUL.search(token["set"][1:]):
            return "has a set with [, --, &&, || or ~~ in it: write a backslash before"
        if token["open"]:
            if token["special"] not in (None, ":"):
                return "looks around, names a group or sets a flag: only ( ) and (?: ) are taken"
            groups.append(False)
        elif token["choice"]:
            groups[-1] = True
        elif token["close"]:
            if len(groups) == 1:
                return "closes a group that was not opened"
            closed = groups.pop()
            groups[-1] = groups[-1] or closed
            continue
        elif token["repeat"]:
            once = token["repeat"] == "?"
            if closed and not once:
                return (
                    "repeats a group that holds a repetition or a choice, which may take for ever: write it otherwise"
                )
            fixed = token["least"] is not None and token["comma"] is None
            repeats += not once and not fixed
            optionals += once
            groups[-1] = groups[-1] or not fixed
        closed = False
    if repeats > MAX_REPEATS or optionals > MAX_OPTIONALS:
        return f"has more than {MAX_REPEATS} repetitions of no fixed number, or {MAX_OPTIONALS} optional parts"
    return None
