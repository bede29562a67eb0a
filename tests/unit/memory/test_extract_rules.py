"""The rules file: every line can be read, every check exists, and a bad line is refused."""

from __future__ import annotations

import re

import pytest

from app.memory.extract import fill_template, read, rules
from app.memory.extract_grammar import words
from tests.support.tables import each_of


def test_all_rules_are_read() -> None:
    assert len(rules()) > 120
    assert rules() is rules()


def test_what_a_rule_says_comes_from_its_pattern() -> None:
    for rule in rules():
        for statement in rule.statements:
            fields = set(
                re.findall(r"\{\+?(\w+?)>?\}", f"{statement.content} {statement.subject} {statement.predicate or ''}")
            )
            assert {field.lower() for field in fields} <= set(rule.pattern.groupindex), statement.content
            assert 0 < statement.importance <= 1
            assert 0 < statement.confidence <= 1


def test_a_part_that_repeats_never_holds_a_part_that_repeats_freely() -> None:
    """`(?:…+)+` takes exponential time on what does not match."""
    for rule in rules():
        pattern = rule.pattern.pattern
        assert not re.search(r"[+*]\)[+*]", pattern.replace(" )*", "").replace("+ ){", "")), pattern


@each_of(
    "line",
    [
        "no arrow at all",
        "i like … => Likes {v}",
        "i like … => Likes {v} ; taste 0.5",
        "i like … => Likes {v} ; taste 0.5 nothing",
        "i like … => Likes {v} ; taste 0.5 thing kind=poem",
        "<NOWHERE> like … => Likes {v} ; taste 0.5 thing",
    ],
)
def test_a_bad_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(line)


def test_fields() -> None:
    rule = read("my (?P<who>dog|cat) (?P<v>.+)(?P<tail> x)? => {Who}: {v>}{+tail} ; pet 0.5 free")[0]
    (statement,) = rule.statements
    content = fill_template(statement, statement.content, {"who": "dog", "v": "watch my door", "tail": ""})
    assert content == "Dog: watches their door"


@each_of("section", ["pointing", "conversation", "not_names", "trades", "languages", "single_valued"])
def test_no_word_list_is_empty(section: str) -> None:
    assert len(words(section)) >= 10
