"""How objects relate."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.features.paging.segment import MOST_REFERENCES, Segmentation
from app.features.paging.values import ObjectType, RelationType
from tests.unit.paging.made import LONG_CODE, PROSE, TRACEBACK, called, cut, said, user

START = [user("Repair it.")]


def edges(found: Segmentation) -> set[tuple[str, str, str]]:
    """(source, relation, target) by tool and key."""
    names: dict[UUID, str] = {
        each.id: f"{each.source_tool} {each.source_key} {i}" for i, each in enumerate(found.objects)
    }
    return {(names[each.source], each.relation.value, names[each.target]) for each in found.relationships}


def gone(found: Segmentation) -> set[UUID]:
    """What something newer says anew."""
    return {each.target for each in found.relationships if each.relation is RelationType.SUPERSEDES}


def read(path: str, text: str, number: int, **more: Any) -> list[dict[str, Any]]:
    return called("Read", {"file_path": path, **more}, text, f"r{number}")


def test_a_file_read_again_supersedes() -> None:
    found = cut([*START, *read("a.py", LONG_CODE, 1), *read("a.py", LONG_CODE + "x = 1\n", 2)])
    assert edges(found) == {("Read a.py 1", "supersedes", "Read a.py 0")}
    assert gone(found) == {found.objects[0].id}


def test_the_whole_supersedes_its_parts_and_not_the_other_way() -> None:
    parts = [*read("a.py", LONG_CODE, 1, offset=1, limit=40), *read("a.py", LONG_CODE + "#", 2, offset=41, limit=40)]
    assert gone(cut([*START, *parts])) == set()
    found = cut([*START, *parts, *read("a.py", LONG_CODE + "##", 3)])
    assert gone(found) == {each.id for each in found.objects[:2]}
    after = cut([*START, *read("a.py", LONG_CODE, 1), *read("a.py", LONG_CODE + "#", 2, offset=1, limit=9)])
    assert gone(after) == set()


def test_another_tool_of_the_same_family_reads_the_same_file() -> None:
    found = cut(
        [*START, *read("src/a.py", LONG_CODE, 1), *called("Bash", {"command": "cat src/a.py"}, LONG_CODE + "#", "b")]
    )
    assert gone(found) == {found.objects[0].id}


def test_an_edit_depends_on_the_reading_and_causes_the_error() -> None:
    messages = [*START, *read("src/money.py", LONG_CODE, 1)]
    messages += called("Edit", {"file_path": "src/money.py", "old_string": "a"}, "updated:\n" + LONG_CODE, "e")
    messages += called("Bash", {"command": "pytest"}, TRACEBACK.replace("src/money.py", "x"), "t")
    found = edges(cut(messages))
    assert ("Edit src/money.py 1", "depends_on", "Read src/money.py 0") in found
    assert ("Bash pytest 2", "caused_by", "Read src/money.py 0") in found


def test_the_edits_result_need_not_be_an_object() -> None:
    messages = [*START, *read("src/money.py", LONG_CODE, 1), *called("Edit", {"file_path": "src/money.py"}, "ok", "e")]
    messages += called("Bash", {"command": "pytest"}, TRACEBACK.replace("src/money.py", "x"), "t")
    assert ("Bash pytest 1", "caused_by", "Read src/money.py 0") in edges(cut(messages))


def test_what_names_a_file_or_its_functions_references_it() -> None:
    messages = [
        *START,
        *read("src/money.py", LONG_CODE, 1),
        *called("Bash", {"command": "python x.py"}, TRACEBACK, "t"),
    ]
    assert ("Bash python x.py 1", "references", "Read src/money.py 0") in edges(cut(messages))
    messages = [*START, *read("src/money.py", LONG_CODE, 1), *read("notes.md", PROSE * 8 + "See convert_currency.", 2)]
    assert ("Read notes.md 1", "references", "Read src/money.py 0") in edges(cut(messages))


def test_references_are_few() -> None:
    messages = list(START)
    for i in range(20):
        messages += read(f"src/file_{i}.py", LONG_CODE.replace("helper_", f"h{i}_"), i)
    listing = "\n".join(f"src/file_{i}.py" for i in range(20)) * 8
    found = cut([*messages, *called("Bash", {"command": "git status"}, listing, "s")])
    last = found.objects[-1].id
    assert sum(each.source == last for each in found.relationships) <= MOST_REFERENCES


def test_a_phase_is_the_parent_of_what_happened_in_it() -> None:
    talk = "The harbour has four basins, a lock with two gates and green lights. "
    messages = [*START, *[each for i in range(6) for each in (user(f"{talk} {i}?"), said(talk * 5))]]
    messages += read("a.py", LONG_CODE, 1)
    messages += [each for i in range(8) for each in (user(f"{talk} {i}!"), said(talk * 5 + str(i)))]
    found = cut(messages)
    phase = next(each for each in found.objects if each.object_type == ObjectType.CONVERSATION_PHASE)
    inside = [
        each.target
        for each in found.relationships
        if each.relation == RelationType.PARENT_OF and each.source == phase.id
    ]
    assert inside == [each.id for each in found.objects if each.source_key == "a.py"]
