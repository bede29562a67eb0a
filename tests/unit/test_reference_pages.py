"""The pages of docs/ that are made from the code are as the code is."""

from __future__ import annotations

import re

from tests.support.tables import each_of
from tools.reference import DOCS, PAGES, openapi


@each_of("name", PAGES)
def test_the_page_is_as_the_code_is(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "stale: `make docs` writes it anew"


def test_every_operation_and_every_shape_is_on_the_page() -> None:
    page, schema = (DOCS / "api.md").read_text(), openapi()
    told = set(re.findall(r"^### `([A-Z]+ [^`]+)`$", page, re.MULTILINE))
    assert told == {f"{method.upper()} {path}" for path, each in schema["paths"].items() for method in each}
    anchors = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert anchors <= {each.lower() for each in re.findall(r"^### ([\w-]+)$", page, re.MULTILINE)}
    assert len(anchors) > 100
