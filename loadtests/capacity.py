"""What so many users take: cores, memory, disk and log, from what was measured and what is assumed.

python -m loadtests.capacity [--users N]… [--set NAME=VALUE]… [--list]

Every number that it begins with has a name, and can be set: what was measured is another on another machine, what is assumed of
users is another of yours. docs/how-to/capacity.md has the table of the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any

import click

DAY_S = 86_400
KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
SEED_MB_PER_USER = 16.5
"""Seed 000 §8.3."""
USERS = (1_000, 1_000_000, 100_000_000)


def measured(value: float, what: str) -> Any:
    return field(default=value, metadata={"what": what, "kind": "measured"})


def assumed(value: float, what: str) -> Any:
    return field(default=value, metadata={"what": what, "kind": "assumed"})


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where it begins. Figures that were measured are of one machine of two cores (docs/generated/benchmarks.md,
    docs/explanation/costs.md)."""

    server_ms: float = measured(
        17.6, "CPU of a server for a turn with a stream of 200 chunks, ms (benchmarks.md, 16 clients)"
    )
    postgres_ms: float = measured(9.19, "CPU of Postgres for that turn, ms (the same line)")
    worker_ms: float = measured(4.31, "CPU of the worker for a turn, ms (benchmarks.md, the bars)")
    wal_turn_kb: float = measured(
        46.7, "log of that turn right after a checkpoint, KB (benchmarks.md, what a turn writes)"
    )
    wal_learned_kb: float = measured(11.5, "log of what the worker learns from it, KB (the same)")
    turn_kb: float = measured(15.5, "bytes at rest of a turn without its capture, KB (capacity.md)")
    capture_kb: float = measured(11.8, "what its capture adds, KB (capacity.md: 6.6, and 5.2 for a stream)")
    memories_per_turn: float = measured(0.29, "memories learned from a turn (benchmarks.md: 143 of 1,000 messages)")
    scan_bytes: float = measured(600.0, "index pages that a search touches for each item of its user, bytes (costs.md)")
    graph_bytes: float = measured(949.0, "of the graph, for each vector of a user who has one, bytes (capacity.md)")
    server_mb: float = measured(265.0, "memory of a server process, MB (benchmarks.md)")
    connection_mb: float = measured(19.0, "memory of a connection with all its plans, 8 partitions, MB (costs.md)")
    worker_mb: float = measured(238.0, "memory of a worker after half an hour, MB (costs.md)")
    active_share: float = assumed(0.25, "of all users that are active on a day")
    turns_per_day: float = assumed(10.0, "turns of an active user on that day")
    turns_per_session: float = assumed(5.0, "turns of one sitting")
    peak_factor: float = assumed(3.0, "turns a second in the busiest hour ÷ mean")
    kept_turns: float = assumed(2_500.0, "turns that are kept of a user: 5,000 messages (seed 000 §8.3)")
    capture_days: float = assumed(30.0, "days that captures stay; 0: none")
    hot_minutes: float = assumed(30.0, "for which a user's pages should stay in memory after a turn")
    graph_share: float = assumed(0.001, "of users whose vectors are in the graph (more than 50,000)")
    busy: float = assumed(0.6, "of a core that is planned with")
    copies: float = assumed(3.0, "of all data: a primary, two replicas")
    primary_cores: float = assumed(32.0, "cores of the largest Postgres server that you run")
    primary_tb: float = assumed(8.0, "TB of its disk")
    primary_wal_mb: float = assumed(100.0, "MB of log a second that it and its replicas carry")
    processes_per_core: float = assumed(1.0, "server processes for each core")
    connections: float = assumed(12.0, "of a server process to Postgres: three pools of four")

    @property
    def log_kb(self) -> float:
        """All of a turn."""
        return self.wal_turn_kb + self.wal_learned_kb


@dataclass(frozen=True, slots=True)
class Needed:
    """What so many users take. Rates are those of the busiest hour."""

    users: int
    turns_s: float
    server_cores: float
    worker_cores: float
    postgres_cores: float
    server_gb: float
    hot_gb: float
    wal_mb_s: float
    memory_tb: float
    capture_tb: float
    graph_tb: float
    primaries: int
    binding: str
    """Of what so many primaries are needed for."""


def needed(users: int, given: Inputs) -> Needed:
    """The arithmetic, from top to bottom."""
    mean_s = users * given.active_share * given.turns_per_day / DAY_S
    peak_s = mean_s * given.peak_factor
    server_cores, worker_cores, postgres_cores = (
        peak_s * each / 1000 / given.busy for each in (given.server_ms, given.worker_ms, given.postgres_ms)
    )
    processes = max(1, ceil(server_cores * given.processes_per_core))
    workers = max(1, ceil(worker_cores))
    # Each kept message and memory is an item that a search touches.
    items = given.kept_turns * (2 + given.memories_per_turn)
    hot_users = min(users * given.active_share, peak_s * given.hot_minutes * 60 / given.turns_per_session)
    memory_tb = users * given.kept_turns * given.turn_kb * KB / TB
    capture_tb = mean_s * DAY_S * given.capture_days * given.capture_kb * KB / TB
    graph_tb = users * given.graph_share * 50_000 * given.graph_bytes / TB
    wal_mb_s = peak_s * given.log_kb * KB / MB
    limits = {
        "cores": postgres_cores / given.primary_cores,
        "disk": (memory_tb + capture_tb + graph_tb) / given.primary_tb,
        "log": wal_mb_s / given.primary_wal_mb,
    }
    binding = max(limits, key=lambda name: limits[name])
    return Needed(
        users=users,
        turns_s=peak_s,
        server_cores=server_cores,
        worker_cores=worker_cores,
        postgres_cores=postgres_cores,
        server_gb=(processes * (given.server_mb + given.connections * given.connection_mb) + workers * given.worker_mb)
        * MB
        / GB,
        hot_gb=hot_users * items * given.scan_bytes / GB,
        wal_mb_s=wal_mb_s,
        memory_tb=memory_tb,
        capture_tb=capture_tb,
        graph_tb=graph_tb,
        primaries=max(1, ceil(limits[binding])),
        binding=binding,
    )


ROWS = (
    ("turns/s, busiest hour", "turns_s"),
    ("cores of servers", "server_cores"),
    ("cores of workers", "worker_cores"),
    ("cores of Postgres", "postgres_cores"),
    ("memory of servers, workers and connections, GB", "server_gb"),
    ("memory for the hot set, GB", "hot_gb"),
    ("log, MB/s", "wal_mb_s"),
    ("history and memory, TB (one copy)", "memory_tb"),
    ("captures, TB (one copy)", "capture_tb"),
    ("graphs of vectors, TB (one copy)", "graph_tb"),
)


def shown(value: float) -> str:
    """Two figures that count."""
    if value >= 100:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.2g}" if value >= 0.01 or value == 0 else "<0.01"


def table(users: Sequence[int], given: Inputs) -> str:
    """As docs/how-to/capacity.md has it."""
    found = [needed(each, given) for each in users]
    lines = ["| users | " + " | ".join(f"{each:,}" for each in users) + " |"]
    lines.append("| --- |" + " --- |" * len(users))
    for name, attribute in ROWS:
        lines.append(f"| {name} | " + " | ".join(shown(getattr(each, attribute)) for each in found) + " |")
    disks = [(each.memory_tb + each.capture_tb + each.graph_tb) * given.copies for each in found]
    lines.append(f"| disk, TB ({given.copies:g} copies) | " + " | ".join(map(shown, disks)) + " |")
    kept = [(each.memory_tb + each.graph_tb) * TB / MB / each.users for each in found]
    lines.append("| MB of a user, without captures | " + " | ".join(map(shown, kept)) + " |")
    lines.append(
        "| primaries, and for what | " + " | ".join(f"{each.primaries:,} ({each.binding})" for each in found) + " |"
    )
    return "\n".join(lines)


def listing(given: Inputs) -> str:
    """The inputs, as docs/how-to/capacity.md has them."""
    lines = ["| name | value | | what |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{each.name}` | {getattr(given, each.name):g} | {each.metadata['kind']} | {each.metadata['what']} |"
        for each in fields(given)
    ]
    return "\n".join(lines)


def changed(given: Inputs, settings: Sequence[str]) -> Inputs:
    """With `NAME=VALUE` each. Raises click.BadParameter."""
    known = {each.name for each in fields(given)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known:
            raise click.BadParameter(f"there is no {name!r}: --list shows what there is", param_hint="--set")
        try:
            given = replace(given, **{name: float(value)})
        except ValueError:
            raise click.BadParameter(f"{value!r} is no number", param_hint="--set") from None
    return given


@click.command()
@click.option("--users", multiple=True, type=click.IntRange(1), help="How many; again for more columns.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Another value of an input.")
@click.option("--list", "lists", is_flag=True, help="Show the inputs.")
def main(users: tuple[int, ...], settings: tuple[str, ...], lists: bool) -> None:
    """Say what so many users take."""
    given = changed(Inputs(), settings)
    click.echo(listing(given) if lists else table(users or USERS, given))


if __name__ == "__main__":
    main()
