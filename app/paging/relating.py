"""How objects relate (seed 002 §1.3): found by the keys and names that they share, through an index, so that 10,000 of
them cost 10,000 look-ups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from app.paging import keys
from app.paging.keys import Family
from app.store.paging_values import ObjectType, Relationship, RelationType, SemanticObject

MOST_REFERENCES = 6
"""Objects that one references: more of them is a listing, not a reference."""
EDITS_BACK = 12
"""Tool results before an error among which its cause is looked for."""
NAME_CHARS = 8
"""Characters of a name that is taken for a reference to the file that has it (`handler` stands in many)."""


def family(made: SemanticObject) -> Family:
    """The family of tools that an object comes from: its first tag."""
    return Family(made.tags[0]) if made.tags else Family.OTHER


class Index:
    """The newest objects by key, by file name, and by the names in them."""

    def __init__(self) -> None:
        self._keys: dict[tuple[Family, str], SemanticObject] = {}
        self._spans: dict[tuple[Family, str], dict[str, SemanticObject]] = {}
        self._named: dict[str, SemanticObject] = {}

    def add(self, made: SemanticObject) -> None:
        key = made.source_key
        if key is not None:
            base = keys.base_key(key)
            group = (family(made), base)
            if key == base:
                self._spans.pop(group, None)
            self._keys[group] = made
            self._spans.setdefault(group, {})[key] = made
            self._named[base] = made
            if "/" in base and "." in base.rpartition("/")[2]:
                self._named[base.rpartition("/")[2]] = made
        if made.object_type == ObjectType.FILE_CONTEXT:
            for name in made.key_entities:
                if len(name) >= NAME_CHARS and "/" not in name and "." not in name:
                    self._named[name] = made

    def covered(self, made: SemanticObject) -> list[SemanticObject]:
        """Objects whose place this one takes: the same key, or parts of what it is the whole of."""
        if made.source_key is None:
            return []
        base = keys.base_key(made.source_key)
        found = self._spans.get((family(made), base), {})
        whole = made.source_key == base
        return [each for key, each in found.items() if whole or key == made.source_key]

    def read(self, key: str) -> SemanticObject | None:
        """The newest reading of a file."""
        return self._keys.get((Family.READ, keys.base_key(key)))

    def named(self, name: str) -> SemanticObject | None:
        return self._named.get(name)


def of(made: SemanticObject, index: Index) -> list[Relationship]:
    """What a new object supersedes, depends on and references, among those of the index (it is not in it yet)."""
    found = [Relationship(made.id, each.id, RelationType.SUPERSEDES) for each in index.covered(made)]
    taken = {each.target for each in found} | {made.id}
    if made.source_key and family(made) in (Family.EDIT, Family.WRITE) and (read := index.read(made.source_key)):
        found.append(Relationship(made.id, read.id, RelationType.DEPENDS_ON))
        taken.add(read.id)
    names = (*made.key_entities, *(keys.paths(made.source_key) + keys.urls(made.source_key) if made.source_key else []))
    referred: dict[UUID, None] = {}
    for name in names:
        other = index.named(name)
        if other is not None and other.id not in taken and other.source_key != made.source_key:
            referred.setdefault(other.id)
    found += [Relationship(made.id, each, RelationType.REFERENCES) for each in list(referred)[:MOST_REFERENCES]]
    return found


def causes(error: SemanticObject, edited: Iterable[str], index: Index) -> list[Relationship]:
    """The object of the file that was edited last before an error, where there is one."""
    for key in edited:
        for other in (index.read(key), index.named(keys.base_key(key))):
            if other is not None and other.id != error.id:
                return [Relationship(error.id, other.id, RelationType.CAUSED_BY)]
    return []


def parents(phase: SemanticObject, inside: Sequence[SemanticObject]) -> list[Relationship]:
    return [Relationship(phase.id, each.id, RelationType.PARENT_OF) for each in inside]
