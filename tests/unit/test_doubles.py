"""What stands in for a class of ours in tests takes what that class takes: mypy does not see it through the casts."""

from __future__ import annotations

import inspect

import pytest

from app.context.compile import Compiler
from app.features.knowledge.domain import Domains
from app.features.knowledge.inquiry import ConflictLog
from app.features.knowledge.ontologies import Ontologies
from app.features.knowledge.resolve import Resolver
from app.features.paging.store import PagingStore
from app.features.preview import Previewer
from app.store.records import ResolutionStore
from app.store.turns import TurnStore
from tests.support import knowing
from tests.support.knowledge import Business
from tests.support.paging import MemoryShelf
from tests.support.wired_api import StubPreviewer, StubSearcher
from tests.unit.capture.test_capture_commit import Gate
from tests.unit.jobs.test_shrinking import Shelf as Unshrunk
from tests.unit.paging.test_faulting import Shelf as Searched


@pytest.mark.parametrize(
    ("double", "real"),
    [
        (Business, Resolver), (Business, Ontologies), (Business, ResolutionStore), (Business, ConflictLog), (Business, Domains),
        (knowing.Names, Resolver), (knowing.Ontologies, Ontologies), (knowing.Table, Domains), (MemoryShelf, PagingStore),
        (Unshrunk, PagingStore), (Searched, PagingStore), (Gate, TurnStore), (StubSearcher, Compiler),
        (StubPreviewer, Previewer),
    ],
)  # fmt: skip
def test_a_double_takes_what_the_class_takes(double: type, real: type) -> None:
    shared = [
        (name, own, getattr(real, name))
        for name, own in vars(double).items()
        if inspect.isfunction(own) and not name.startswith("_") and inspect.isfunction(getattr(real, name, None))
    ]
    assert shared
    for name, own, other in shared:
        taken, given = inspect.signature(own).parameters, inspect.signature(other).parameters
        needed = [each for each, one in given.items() if one.default is inspect.Parameter.empty]
        assert set(needed) <= set(taken) <= set(given), name
        assert [each for each in given if each in taken] == list(taken), name
