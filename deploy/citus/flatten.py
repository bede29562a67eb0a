"""The schema for Citus: the same migrations, but that Citus takes the place of the hash partitions.

    python deploy/citus/flatten.py sql/schema DESTINATION

Citus distributes no table that is partitioned twice. What is partitioned by user becomes a plain table, which Citus distributes
by user; history keeps its months, as captures do. `distribute.sql` does the rest.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Rule(NamedTuple):
    """What is written differently: in which file, how often at least, so that a change of the schema does not slip through."""

    file: str
    pattern: str
    replacement: str
    least: int = 1


HISTORY = "002_history.sql"
RULES = (
    # History keeps its months.
    Rule(
        HISTORY,
        r"(    PRIMARY KEY \(user_id, message_id, created_at\)\n\)) PARTITION BY HASH \(user_id\);\n\nDO \$\$.*?\nEND \$\$;\n",
        r"\1 PARTITION BY RANGE (created_at);\n"
        r"CREATE TABLE agent_data.conversation_history_rest PARTITION OF agent_data.conversation_history DEFAULT;\n",
    ),
    Rule(
        HISTORY,
        r"SELECT c\.relname AS name FROM pg_inherits i JOIN pg_class c ON c\.oid = i\.inhrelid\n"
        r" +WHERE i\.inhparent = 'agent_data\.conversation_history'::regclass ORDER BY 1",
        "SELECT 'conversation_history' AS name",
    ),
    # Citus makes a trigger only where it is told to trust it: that a month is emptied, by its own name, is not noticed there.
    Rule(HISTORY, r" +EXECUTE format\('CREATE TRIGGER index_emptied [^\n]*\n", ""),
    # Everything else that is partitioned by user is one table.
    Rule("*", r"\) PARTITION BY HASH \(user_id\) ?;", ");", 30),
    Rule("*", r"^SELECT agent_data\.make_hash_partitions\(.*\);\n", "", 30),
    # Citus finds the shard in a plan that is made for the values; of one that is made once, for all of them, it refuses most.
    Rule("*", r"\bplan_cache_mode = force_generic_plan\b", "plan_cache_mode = force_custom_plan", 15),
    # What is done to each partition is done to the table.
    Rule(
        "003_memory.sql",
        r"SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'agent_data\.memory_store'::regclass",
        "SELECT 'agent_data.memory_store'::regclass",
    ),
    Rule(
        "*",
        r"SELECT c\.oid, c\.relname FROM pg_inherits i JOIN pg_class c ON c\.oid = i\.inhrelid\n"
        r"( +)WHERE i\.inhparent = 'agent_data\.embeddings'::regclass ORDER BY c\.relname",
        r"SELECT c.oid, c.relname FROM pg_class c\n\1WHERE c.oid = 'agent_data.embeddings'::regclass",
    ),
)


def flattened(files: dict[str, str]) -> dict[str, str]:
    """The files with every rule applied. Raises ValueError where one finds less than it should."""
    made = dict(files)
    for rule in RULES:
        found = 0
        for name in made:
            if rule.file in ("*", name):
                made[name], count = re.subn(
                    rule.pattern,
                    rule.replacement,
                    made[name],
                    flags=re.MULTILINE | (re.DOTALL if rule.file == HISTORY else 0),
                )
                found += count
        if found < rule.least:
            raise ValueError(f"{rule.pattern!r} was found {found} times in {rule.file}, not {rule.least}")
    if left := [name for name, text in made.items() if any(_by_hash(text))]:
        raise ValueError(f"still partitioned by hash: {left}")
    return made


def _by_hash(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if "BY HASH" in line and not line.startswith("--"))


def main(source: Path, destination: Path) -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(source.glob("*.sql"))}
    destination.mkdir(parents=True, exist_ok=True)
    for name, text in flattened(files).items():
        (destination / name).write_text(text, encoding="utf-8")
    shutil.copymode(source, destination)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
