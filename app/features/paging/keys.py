"""What a tool's call was about: the family of the tool, and the key (file, URL, command, query) that a later call may share;
and the names in a content. Pure, linear."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from app.json_text import read_json


class Family(StrEnum):
    """Tools that do the same, whatever an agent calls them."""

    READ = "read"
    EDIT = "edit"
    WRITE = "write"
    SHELL = "shell"
    SEARCH = "search"
    LIST = "list"
    FETCH = "fetch"
    PLAN = "plan"
    OTHER = "other"


class UnderstoodCall(NamedTuple):
    """A tool's call as it is understood. `key`: None where nothing in the arguments names anything."""

    tool: str
    family: Family
    key: str | None


MAX_ARGUMENT_CHARS = 1_048_576
"""Longer arguments are not parsed: they are a file's new content, and their key would be at the front of no parser's reach."""
KEY_CHARS = 240
"""Longest key, characters: a path; of a longer command the beginning tells enough."""
MOST_VALUES = 256
"""Values of an argument object that are looked at."""
_NAMES: Mapping[Family, str] = MappingProxyType(
    {
        Family.READ: "read readfile cat view viewfile openfile open getfile getfilecontents filereader notebookread"
        " readtextfile readmultiplefiles showfile",
        Family.EDIT: "edit editfile multiedit strreplace strreplaceeditor strreplacebasededittool applypatch applydiff patch"
        " replaceinfile searchreplace notebookedit update updatefile",
        Family.WRITE: "write writefile createfile writetofile savefile filewrite",
        Family.SHELL: "bash shell exec execute executecommand runcommand runterminalcmd terminal localshell execcommand run"
        " runshellcommand python runpython codeinterpreter runcode powershell",
        Family.SEARCH: "grep search searchfiles ripgrep rg codebasesearch grepsearch searchcode findinfiles"
        " websearch toolsearch",
        Family.LIST: "ls list listdir listdirectory listfiles glob find findfiles filesearch tree directorytree",
        Family.FETCH: "webfetch fetch browse fetchurl openurl geturl httpget curl browsernavigate readurl scrape visit"
        " navigate",
        Family.PLAN: "todowrite todo todos updateplan plan writetodos updatetodos createplan todoread exitplanmode",
    }
)
_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {name: family for family, names in _NAMES.items() for name in names.split()}
)
_PATHS = (
    "file_path filepath path target_file filename file_name file notebook_path relative_path absolute_path"
    " relative_workspace_path directory dir uri"
)
_QUERIES = "pattern query q regex search_term search glob keyword term"
_ARGUMENTS: Mapping[Family, str] = MappingProxyType(
    {
        Family.READ: _PATHS,
        Family.EDIT: _PATHS,
        Family.WRITE: _PATHS,
        Family.SHELL: "command cmd script code commands input",
        Family.SEARCH: _QUERIES,
        Family.LIST: f"{_PATHS} {_QUERIES}",
        Family.FETCH: "url uri href link address urls",
    }
)
_URL = re.compile(r"https?://[^\s\"'<>)\]]{3,500}")
_PATH = re.compile(r"(?:[\w.@~-]{0,80}/){1,20}[\w.@-]{1,120}|[\w@-]{1,80}\.[A-Za-z]\w{0,7}")
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.{1,240})$|^\+\+\+ (?:b/)?(.{1,240})$", re.MULTILINE)
# A command that prints one file, as a reading of it: cat, head -50, sed -n '1,80p' …
_PRINTS = re.compile(r"(?:cat|bat|nl|less|more|type)(?:\s+-[A-Za-z]+)*\s+([^\s|&;<>]+)\Z")
_PRINTS_PART = re.compile(r"sed\s+-n\s+['\"]?(\d+),(\d+)p['\"]?\s+([^\s|&;<>]+)\Z")
_CHANGES_TO = re.compile(r"cd\s+[^\s;&|]+\s*&&\s*")
_GETS = re.compile(r"(?:curl|wget)\s")
_SPAN = re.compile(r":\d+-\d*\Z")


def family_of(tool: str) -> Family:
    """The family of a tool by its name, a server's prefix left aside (`mcp__files__read_file`, `functions.exec`)."""
    last = re.split(r"__|[./:]", tool.strip()[:200])[-1]
    return _FAMILIES.get(re.sub(r"[^a-z]", "", last.lower()), Family.OTHER)


def understand(tool: str, arguments: object) -> UnderstoodCall:
    """A call by its tool's name and its arguments (JSON text, or a mapping; anything else has no key)."""
    family = family_of(tool)
    if family == Family.PLAN:
        return UnderstoodCall(tool, family, "plan")
    if isinstance(arguments, str):
        given = _parsed(arguments)
        if given is None:
            return _by_text(tool, family, arguments)
    else:
        given = arguments if isinstance(arguments, Mapping) else {}
    key = _named(given, _ARGUMENTS.get(family, "")) or _by_shape(given, family)
    if key is None:
        return UnderstoodCall(tool, family, None)
    if family == Family.SHELL:
        return _command(tool, key)
    if family in (Family.READ, Family.EDIT, Family.WRITE):
        patched = _PATCHED.search(key)
        key = _path((patched[1] or patched[2]) if patched else key) + (_range(given) if family == Family.READ else "")
    elif family == Family.SEARCH and (where := _named(given, _PATHS)):
        key = f"{_clean(key)} in {_path(where)}"
    return UnderstoodCall(tool, family, _clean(key))


def base_key(key: str) -> str:
    """The key without the lines that a reading was limited to: `a.py:10-40` → `a.py`."""
    return _SPAN.sub("", key)


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def urls(text: str) -> list[str]:
    """URLs in a text, without the stop that a sentence puts after them."""
    return [each.rstrip(".,;:!?") for each in _URL.findall(text)]


def paths(text: str) -> list[str]:
    return [_path(each) for each in _PATH.findall(text)]


def _parsed(text: str) -> Mapping[str, Any] | None:
    if len(text) > MAX_ARGUMENT_CHARS:
        return None
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else {"": value}


def _by_text(tool: str, family: Family, text: str) -> UnderstoodCall:
    """Arguments that are no JSON: a custom tool's text, or broken."""
    if patched := _PATCHED.search(text[:MAX_ARGUMENT_CHARS]):
        return UnderstoodCall(tool, family, _path(patched[1] or patched[2]))
    return UnderstoodCall(tool, family, _clean(text) or None)


def _named(given: Mapping[str, Any], names: str) -> str | None:
    lowered = {str(name).lower(): value for name, value in _first(given)}
    for name in names.split():
        value = lowered.get(name) or lowered.get(name.replace("_", ""))
        if text := _text(value):
            return text
    return None


def _text(value: object) -> str:
    """A value as a key: a string, or a list of them (argv)."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value[:MOST_VALUES]):
        words = list(value[:MOST_VALUES])
        if words[0] in ("bash", "sh", "zsh") and len(words) > 2:  # ["bash", "-lc", "…"]
            return str(words[-1]).strip()
        return " ".join(words).strip()
    return ""


def _by_shape(given: Mapping[str, Any], family: Family) -> str | None:
    """The first string that looks like what the family works on; of an unknown tool a URL, a path, or the first string."""
    strings = [text for _, value in _first(given) if (text := _text(value))]
    if family in (Family.FETCH, Family.OTHER) and (found := next((each for each in strings if is_url(each)), None)):
        return found
    if family != Family.SHELL and (
        found := next((each for each in strings if _PATH.fullmatch(each[:KEY_CHARS])), None)
    ):
        return found
    return strings[0] if strings else None


def _first(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for number, item in enumerate(given.items()):
        if number >= MOST_VALUES:
            return
        yield item


def _command(tool: str, command: str) -> UnderstoodCall:
    """A command; one that only prints a file, or gets a URL, is a reading of that."""
    line = _CHANGES_TO.sub("", command.strip()[: KEY_CHARS * 4], count=1)
    if part := _PRINTS_PART.match(line):
        return UnderstoodCall(tool, Family.READ, _clean(f"{_path(part[3])}:{part[1]}-{part[2]}"))
    if printed := _PRINTS.match(line):
        return UnderstoodCall(tool, Family.READ, _clean(_path(printed[1])))
    if _GETS.match(line) and (found := urls(line)):
        return UnderstoodCall(tool, Family.FETCH, _clean(found[0]))
    return UnderstoodCall(tool, Family.SHELL, _clean(line) or None)


def _range(given: Mapping[str, Any]) -> str:
    """`:first-last` of a reading that asks for some lines; empty when it asks for all."""
    pair = given.get("view_range") or given.get("lines")
    if isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(each, int) for each in pair):
        return f":{pair[0]}-{pair[1] if pair[1] > 0 else ''}"
    start = _whole(given, "offset", "start_line", "startline", "start_line_one_indexed", "from_line")
    last = _whole(given, "end_line", "endline", "end_line_one_indexed_inclusive", "to_line")
    limit = _whole(given, "limit", "num_lines")
    if start is None and last is None and limit is None:
        return ""
    begin = start or 1
    if last is None and limit is not None:
        last = begin + limit - 1
    return f":{begin}-{'' if last is None else last}"


def _whole(given: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if isinstance(value := given.get(name), int) and value >= 0:
            return value
    return None


def _path(path: str) -> str:
    """One spelling of a path: no quotes, no `./`, no doubled slashes."""
    plain = path.strip().strip("'\"`").removeprefix("file://")
    return posixpath.normpath(plain) if plain and not is_url(plain) else plain


def _clean(key: str) -> str:
    """A key on one line, no longer than `KEY_CHARS`."""
    folded = " ".join(key[: KEY_CHARS * 4].split())
    return folded if len(folded) <= KEY_CHARS else folded[: KEY_CHARS - 1] + "…"


# --- the key entities of a content (seed 002 §1.2): paths, URLs, names of functions and classes, errors ------------------

LOOKED_AT_CHARS = 65_536
"""Characters of a content that are looked at (some 16,000 tokens)."""
MOST = 24
"""Entities kept of one content."""
MIN_NAME = 5
"""Letters of a name that tells one thing from another (`run`, `data` do not)."""
NAME_CHARS = 120
"""Longest entity, characters."""
DEFINED = re.compile(
    r"^[ \t]{0,32}(?:\d{1,6}[→\t|:][ \t]{0,32})?"
    r"(?:export |default |public |private |protected |static |async |pub |final |abstract |override ){0,5}"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|module|object)\*? {1,4}(?:\([^)\n]{0,80}\) ?)?"
    r"([A-Za-z_$][\w$]{1,80})",
    re.MULTILINE,
)
"""Where common languages give a name to a function or a class; the name is the first group."""
_ERROR = re.compile(
    r"\b(?:[A-Z][A-Za-z]{2,60}(?:Error|Exception|Warning|Failure)|[A-Z][A-Z0-9]{1,20}(?:_[A-Z0-9]{1,20}){1,5}|E\d{3,5})\b"
)
_NAME = re.compile(
    r"\b(?:[a-z]{2,30}(?:[A-Z][a-z0-9]{1,30}){1,4}|[A-Z][a-z]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,4}|[a-z]{2,30}(?:_[a-z0-9]{1,30}){1,5})\b"
)


def entities(text: str, key: str | None = None) -> tuple[str, ...]:
    """At most `MOST` of them, each once: the key, what is defined, errors, files and URLs, other names; as they are written."""
    seen = text[:LOOKED_AT_CHARS]
    found: dict[str, None] = {}
    if key:
        found[base_key(key)] = None
    for name in defined(seen):
        found.setdefault(name)
    for name in _ERROR.findall(seen)[:MOST]:
        found.setdefault(name)
    for name in (urls(seen) + paths(seen))[: MOST * 4]:
        found.setdefault(name)
    if len(found) < MOST:
        for name in _NAME.findall(seen)[: MOST * 4]:
            if len(name) >= MIN_NAME:
                found.setdefault(name)
    return tuple(each for each in found if MIN_NAME <= len(each) <= NAME_CHARS)[:MOST]


def defined(text: str) -> list[str]:
    """Names that a content gives to functions and classes, in order, each once."""
    return list(dict.fromkeys(each for each in DEFINED.findall(text[:LOOKED_AT_CHARS]) if len(each) > 1))
