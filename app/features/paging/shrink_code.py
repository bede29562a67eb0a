"""Code without its bodies: imports, classes, signatures, first words of documentation, what is raised and returned. Pure.

Python by its syntax tree where it parses; everything else by the lines that common languages begin their definitions with.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings

from app.features.paging.keys import DEFINED
from app.features.paging.outline import Group, Outline, OutlineLine, beyond, source_lines

GROUPS = (
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
SIGNATURE, DOC, CONSTANT, IMPORT, EXIT, BODY = range(len(GROUPS))

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


def outline(text: str, language: str | None) -> Outline:
    lines, first = source_lines(text)
    groups = _python(lines) if language in ("Python", None) else None
    if groups is None:
        groups = _by_lines(lines)
    made = [
        # What stands outermost comes first: a class before its methods.
        OutlineLine(line, group, first + i, -float(len(line) - len(line.lstrip())) if group == SIGNATURE else 0.0)
        for i, (line, group) in enumerate(zip(lines, groups, strict=True))
        if line.strip()
    ]
    return Outline((), GROUPS, made, beyond(text))


def config(text: str) -> Outline:
    """Settings (YAML, TOML, INI and their like): by how far a line is indented."""
    lines, first = source_lines(text)
    made: list[OutlineLine] = []
    for i, line in enumerate(lines):
        if plain := line.strip():
            indent = len(line) - len(line.lstrip())
            inner = plain.startswith(("#", ";", "//"))
            section = (indent == 0 and plain.endswith(":")) or plain.startswith("[")
            made.append(
                OutlineLine(line.rstrip(), 2 if inner else 0 if section else 1 if indent <= 2 else 2, first + i)
            )
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
        _mark(node, groups, lines)
    return groups


def _mark(node: ast.AST, groups: list[int], lines: list[str]) -> None:
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


def _by_lines(lines: list[str]) -> list[int]:
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
