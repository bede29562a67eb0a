"""Which patterns an operator may write: those that end in a short time on any mention."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from app.features.knowledge.ontology_yaml import pattern_trouble
from tests.support.properties import examples
from tests.support.tables import each_of

FINE = [
    r"SO-\d{3,8}", r"[a-z]{2,20}_\d{3}", r"(?:SO|PO)-\d+", r"INV-?\d{4}(?:-\d{2})?", r"[A-Z]{2}\d+(-R)?", r"\(\d+\)",
    r"[]x^-]\d", r"a\|b\+", r"[0-9a-f]{8}-[0-9a-f]{4}",
]  # fmt: skip
BAD = [
    (r"(a+)+", "for ever"), (r"(a|aa)+", "for ever"), (r"(\d+-?)*x", "for ever"), (r"(?:\w{1,9}){2,9}", "for ever"),
    (r"((a+))+", "for ever"), (r"(a?){30}", "for ever"), (r"(a)\1", "refers back"), (r"(?=a)a", "looks around"),
    (r"(?P<x>a)", "looks around"), (r"(?i)a", "looks around"), (r"\d*", "the empty text"), (r"[", "no regular expression"),
    (r"\d+\w+\w+\w+", "more than 3 repetitions"), ("a?" * 9 + "b", "optional parts"), ("a" * 201, "longer than"),
    (r"[a--b]", "has a set with"), (r"a)", "not opened"),
]  # fmt: skip


@each_of("pattern", FINE)
def test_what_keys_look_like_is_taken(pattern: str) -> None:
    assert pattern_trouble(pattern) is None


@each_of(("pattern", "trouble"), BAD)
def test_what_may_take_for_ever_is_refused(pattern: str, trouble: str) -> None:
    assert trouble in (pattern_trouble(pattern) or "")


@examples(300)
@given(st.text(alphabet=st.sampled_from(list("ab01()|*+?{},[]\\dw.-^$:=")), max_size=24))
def test_whatever_is_taken_ends_soon(pattern: str) -> None:
    if pattern_trouble(pattern) is None:
        began = time.process_time()
        for mention in ("a" * 60, "ab" * 30, "0" * 60 + "x"):
            re.fullmatch(pattern, mention)
        assert time.process_time() - began < 1
