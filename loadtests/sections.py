"""The sections of docs/generated/benchmarks.md that tell a document each (see results.py); that of `loadtests.bench` is in
report.py.

Plain functions from what was kept to lines of Markdown. Every section says what was asked, what was measured, and how.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loadtests.figures import number, ratio
from loadtests.results import Document, Name

Entry = Mapping[str, Any]


class About(NamedTuple):
    """A measurement: its title, and the minutes that it takes, full and quick."""

    title: str
    minutes: float
    quick: float


ABOUT: Mapping[Name, About] = {
    "bench": About("What a request costs", 15, 1.5),
    "scale": About("What a compile costs as the tables grow", 25, 3),
    "wal": About("What a turn writes", 4, 2),
    "prefix": About("What of a prompt stays the same", 4, 2),
    "replaying": About("How true a replay is", 2, 1),
    "resolving": About("What a mention means, and what it costs to know", 2, 0.5),
    "soak": About("What happens in a long run", 35, 3),
}
LINE = 120
"""Characters of a line of prose."""
RECALL, REUSE, AMPLIFICATION, COMPILE_MS = 0.98, 0.99, 1.5, 15.0
RECALL_ROWS = 50
"""What the graph was asked for in runs that do not say it."""
KNOWN_MS, NEAR_MS = 15.0, 30.0
"""The bars; the last two are seed 004's, of stages 2 and 3."""
LATE_MS = 10.0
"""How far a played piece may be from its recorded time, 95 of 100: a fifth of the gap between tokens at 20 a second."""
GIVEN = ("CPU", "memory")
"""Of a machine, told first."""
BARS = ("asked", "measured", "met")
HOW = ["### How it is measured", ""]


def introduction(document: Document) -> list[str]:
    """The heading, and where, when and how it was measured."""
    about, machine = ABOUT[document["name"]], document["machine"]
    told = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in GIVEN)
    lines = [
        f"## {about.title}",
        "",
        *paragraph(
            f"`.venv/bin/python -m loadtests.{document['name']}` (some {about.minutes:g} minutes; with `--quick` "
            f"{about.quick:g}, for the shape). {document['at'][:10]}, {machine['CPU']}, {machine['memory']}; {told}."
        ),
    ]
    if document["quick"]:
        lines += paragraph(
            "This was a quick run, on a machine that was doing other things: the shape counts, not the figures."
        )
    if "note" in document:
        lines += paragraph(document["note"])
    return lines


def bullets(*items: str) -> list[str]:
    """A list, its lines cut to size, and an empty line."""
    return [*(line for each in items for line in _wrapped(f"- {each}", "  ")), ""]


def paragraph(text: str) -> list[str]:
    """A paragraph, its lines cut to size, and an empty line."""
    return [*_wrapped(text), ""]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, LINE, subsequent_indent=indent, break_on_hyphens=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table, and an empty line."""
    return [_row(head), "|" + " --- |" * len(head), *map(_row, rows), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def figure(value: float | None) -> str:
    """A kept figure: null was NaN."""
    return number(math.nan if value is None else value)


def met(holds: bool) -> str:
    """Whether a bar is met."""
    return "yes" if holds else "**no**"


# --- scale ---------------------------------------------------------------------------------------------------------------


def scale(document: Document) -> list[str]:
    """Compiles in growing tables, and the recall of the graph."""
    amount, cells = document["amount"], document["cells"]
    names = list(dict.fromkeys(each["case"] for each in cells))
    rows = [_cell(each) for name in names for each in cells if each["case"] == name]
    head = ("vectors in the graph", "of the user", "recall", "least", "rows", "least", "exact, ms", "graph, ms")
    return [
        *table(("compile", "memories in the table", "p50 ms", "p99 ms", "CPU ms + Postgres", "pace ms"), rows),
        *table(BARS, [*_growths(cells, names), *_slowest(cells), *_recalled(document["recalls"])]),
        "What the graph finds of the 50 vectors nearest by the exact scan, and the rows that it returns:",
        "",
        *table(head, [_recall(each) for each in document["recalls"]]),
        *HOW,
        *bullets(
            "`memory_store` grows as told; each other user has 1,000 memories and "
            f"{amount['messages']:,} messages over six monthly partitions. Texts are made up, each user's on topics of their "
            "own (`loadtests/prose.py`); vectors and token counts are those of the shipped embedder and tokenizer. All of it "
            "is written straight into the tables, with the word counts that the worker would leave; then `VACUUM`.",
            "One user has 1,000 memories and 1,000 messages; one 10,000 memories, 1,000 messages and a session of 200 turns, "
            "which came through `/api/v1/import` and a worker.",
            "A compile is what `POST /api/v1/context` does between the request's bytes and those that would go upstream: "
            "find the session, retrieve, score, pack, place, weave. It runs in the measuring process, wired as the "
            f"server's, one at a time, every question a new one: {amount['compiles']} of each kind at each size, all kinds "
            "in turn in five rounds.",
            'Every question asks what was said earlier ("What did I say about …?"): for one that memory need not answer '
            f"nothing is fetched. {100 * min(cell['shows_memory'] for cell in cells):.0f} % of the prompts show memory, in the "
            "line with the fewest.",
            "CPU is the mean of a round, median of the rounds. *pace* is the CPU time of a fixed piece of work at that "
            "moment: what differs between two sizes by as much as the pace does was the machine.",
            "The graph is asked through `agent_data.index_beside`, as a request does, for a user switched over to it by hand "
            "(in life that happens above 50,000 vectors, half of what a server keeps of one user). All vectors "
            "of the user's partition, everybody's, are in it.",
        ),
    ]


def _cell(cell: Entry) -> list[str]:
    spent = f"{figure(cell['server_ms'])} + {figure(cell['postgres_ms'])}"
    times = [figure(cell[name]) for name in ("p50_ms", "p99_ms")]
    return [cell["title"], f"{cell['memories']:,}", *times, spent, figure(cell["pace_ms"])]


def _recall(found: Entry) -> list[str]:
    sizes = [f"{found[name]:,}" for name in ("graph", "own")]
    shares = [f"{found[name]:.3f}" for name in ("recall", "recall_least")]
    times = [figure(found[name]) for name in ("exact_ms", "graph_ms")]
    return [*sizes, *shares, figure(found["rows"]), str(found["rows_least"]), *times]


def grown(cells: Sequence[Entry], case: str, name: str) -> tuple[float, float]:
    """From the smallest table to the largest: how many times a figure has grown, and the logarithm of the memories."""
    line = sorted((each for each in cells if each["case"] == case), key=lambda each: int(each["memories"]))
    if len(line) < 2:
        return math.nan, math.nan
    first, last = line[0], line[-1]
    return ratio(last[name], first[name]), math.log(last["memories"]) / math.log(first["memories"])


def _growths(cells: Sequence[Entry], names: Sequence[str]) -> list[list[str]]:
    rows = []
    for name in names:
        times, allowed = grown(cells, name, "cpu_ms")
        if not math.isnan(times):
            line = [each for each in cells if each["case"] == name]
            sizes = f"{line[0]['memories']:,} to {line[-1]['memories']:,} memories"
            asked = f"{line[0]['title']}: CPU from {sizes} grows no faster than their logarithm (× {number(allowed)})"
            rows.append([asked, f"× {number(times)}", met(times <= allowed)])
    return rows


def _slowest(cells: Sequence[Entry]) -> list[list[str]]:
    heavy = [each for each in cells if each["case"] != "light"]
    if not heavy:
        return []
    worst = max(float(each["p99_ms"]) for each in heavy)
    asked = f"p99 of a compile with 10,000 memories and a session of 200 turns ≤ {COMPILE_MS:g} ms (the slowest line)"
    return [[asked, f"{figure(worst)} ms", met(worst <= COMPILE_MS)]]


def _recalled(recalls: Sequence[Entry]) -> list[list[str]]:
    if not recalls:
        return []
    least, rows = min(each["recall"] for each in recalls), min(each["rows_least"] for each in recalls)
    asked = max(each.get("asked", RECALL_ROWS) for each in recalls)
    return [
        [f"recall of the graph, filtered by user, ≥ {RECALL}", f"{least:.3f}", met(least >= RECALL)],
        [f"`k` = {asked} rows really returned", str(rows), met(rows >= asked)],
    ]


# --- wal -----------------------------------------------------------------------------------------------------------------

KINDS = {"reply": "a plain answer of 20 words", "stream": "a stream of 200 chunks"}


def wal(document: Document) -> list[str]:
    """The write-ahead log of a turn."""
    shipped = {each["kind"]: each for each in document["after_checkpoint"]}
    rows = [_turn(each, shipped[each["kind"]]) for each in document["kinds"]]
    worst = max(each["amplification"] for each in document["kinds"])
    events = document["events"]
    sizes = ("KB of log", "of it vectors", "÷ values", "÷ values before compression")
    bar = [f"log ÷ values of a turn ≤ {AMPLIFICATION}", f"{worst:.2f}", met(worst <= AMPLIFICATION)]
    return [
        *table(("turn with", *sizes, "KB after a checkpoint", "of it images of pages (number)"), rows),
        *table(BARS, [bar]),
        *paragraph(
            f"The same streams written as one row for each of their {events['events']:.0f} events take "
            f"{_kb(events['row_each'])} KB of log each, {figure(events['ratio'])} times the {_kb(events['one_row'])} KB of "
            f"one row. What the worker learns from a turn writes {_kb(document['learned'])} KB more, later."
        ),
        *(line for kind in document["kinds"] for line in _parts(kind)),
        *HOW,
        *bullets(
            f"{document['turns']} turns with plain answers and {document['streams']} with streams, one after the other, in "
            "conversations of ten turns that are sent whole each time, by a user with a past. Everything is on; the worker "
            "is off.",
            "Log is `pg_current_wal_flush_lsn` at the end − at the beginning; pg_walinspect tells which table each record "
            "is of. Autovacuum is off: when it comes is a matter of chance.",
            "*Values* are the bytes of all column values of the rows that were inserted or updated (`pg_column_size`), "
            "vectors apart on both sides, as they lie in the table: compressed where Postgres compressed them. Before "
            "compression they are more, and the ratio smaller.",
            "The first figures are from a Postgres with `full_page_writes` off; those after a checkpoint from one as "
            "shipped, right after a `CHECKPOINT`: the most that a turn can write, for pages that were changed since a "
            "checkpoint are not written whole again.",
        ),
    ]


def _turn(kind: Entry, shipped: Entry) -> list[str]:
    sizes = [_kb(kind["wal"] - kind["images"]), _kb(kind["vectors"])]
    ratios = [f"{kind[name]:.2f}" for name in ("amplification", "amplification_plain")]
    images = f"{_kb(shipped['images'])} ({figure(shipped['image_count'])})"
    return [KINDS[kind["kind"]], *sizes, *ratios, _kb(shipped["wal"]), images]


def _parts(kind: Entry) -> list[str]:
    rows = []
    for each in kind["tables"]:
        sizes = [f"{each[name]:.0f}" for name in ("stored", "heap", "indexes")]
        rows.append([each["table"], figure(each["rows"]), figure(each["updates"]), *sizes])
    head = ("table", "rows", "updates", "bytes of values", "log of the table", "log of its indexes")
    return [f"Per turn with {KINDS[kind['kind']]}:", "", *table(head, rows)]


def _kb(value: float) -> str:
    return number(value / 1000)


# --- prefix --------------------------------------------------------------------------------------------------------------


def prefix(document: Document) -> list[str]:
    """How much of a prompt is that of the turn before."""
    sessions = document["sessions"]
    tail = [each["reused"] for each in sessions if each["placement"] == "tail"]
    head = ("placement", "turns", "with another memory than before", "rebases", "bytes of the last prompt")
    bar = f"`tail`: of a prompt found again in the next one, between rebases, ≥ {REUSE:.0%}"
    return [
        *table((*head, "reused, mean", "least", "mean, rebases included"), [_session(each) for each in sessions]),
        *table(BARS, [[bar, _share(each), met((each or 0) >= REUSE)] for each in tail]),
        *HOW,
        *bullets(
            f"A user with {document['messages']:,} messages in the past and what was learned from them; one session, whose "
            "transcript is sent whole each time. Before every turn a memory is added that its question is about, and the "
            "worker learns from each.",
            "What counts is what the upstream received: the bytes of `messages` that are, from the beginning, those of the "
            "turn before, ÷ all of that one's.",
            "A rebase drops all blocks of a session and begins anew: when they have used up their budget, or something in "
            "them was forgotten or replaced. `system` and `second_system` stand before the conversation, so a new memory "
            "changes all of it.",
        ),
    ]


def _session(found: Entry) -> list[str]:
    counts = [str(found[name]) for name in ("turns", "changed", "rebases")]
    shares = [_share(found[name]) for name in ("reused", "reused_least", "reused_all")]
    return [f"`{found['placement']}`", *counts, f"{found['prompt_bytes']:,}", *shares]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


# --- replaying -----------------------------------------------------------------------------------------------------------

SESSIONS = {"captures": "what was captured of a vLLM, from a script", "live": "a vLLM that runs"}


def replaying(document: Document) -> list[str]:
    """Replays beside their recordings."""
    played, tolerance = document["played"], document["tolerance_ms"]
    equal, calls, same, chunked = (
        sum(each[n] for each in played) for n in ("equal", "calls", "chunks_equal", "chunked")
    )
    worst = max(each["p95_ms"] for each in played)
    recorded = ("answers", "ended", "with memory", "errors", "bytes", "pieces", "seconds")
    times = ("p50 ms", "p95 ms", "most, ms", "late on average, ms", "a bare timer, p95 ms")
    return [
        *table(("recorded from", *recorded), [_recording(each) for each in document["recorded"]]),
        *table(
            ("played", "at once", "answers equal", "borders equal", "pieces", *times),
            [_played(each) for each in played],
        ),
        *table(
            BARS,
            [
                ["status, headers, every byte and the end as recorded", f"{equal:,} of {calls:,}", met(equal == calls)],
                ["borders of all pieces as recorded", f"{same:,} of {chunked:,} answers", met(same == chunked)],
                [f"pieces within {tolerance:g} ms of their time (p95)", f"{figure(worst)} ms", met(worst <= tolerance)],
            ],
        ),
        *HOW,
        *bullets(
            "Calls are made of Mneme, with memory on, over raw sockets that keep every byte, border and time; exported by "
            "`mneme capture export`; and played by `mneme replay serve --speed 1 --match strict --once`. What is played is "
            "compared with the cassette and with what the client of the recording saw.",
            "The session of captures is every case in `tests/fixtures/captures`, each in its time; that of a vLLM the same "
            "requests sent once more (chats, streams, tools, structured output, errors, completions, `/v1/responses`, "
            "`/v1/messages`), a conversation with memory, long streams, and clients that go away. Its model is tiny and "
            "random: the words are gibberish, the protocol is not. On two cores its tokens come in bursts: in few pieces.",
            "The time of a piece is from the client's request to its last byte, beside the cassette's from the request's "
            f"coming in to the piece. Each session is played {document['rounds']} times, by one client and by sixteen, on a "
            "server that has answered before. *A bare timer* is how late a sleep of 10 ms in the client woke meanwhile: "
            "that much was the machine.",
            "An answer that has a `Content-Length` has no borders on the wire; its times count all the same.",
        ),
    ]


def _recording(found: Entry) -> list[str]:
    ended = ", ".join(f"{count} {name}" for name, count in found["outcomes"].items())
    counts = [f"{found[name]:,}" for name in ("with_memory", "errors", "bytes", "pieces")]
    return [SESSIONS[found["session"]], str(found["calls"]), ended, *counts, figure(found["seconds"])]


def _played(found: Entry) -> list[str]:
    equal = [f"{found['equal']:,} of {found['calls']:,}", f"{found['chunks_equal']:,} of {found['chunked']:,}"]
    times = [figure(found[name]) for name in ("p50_ms", "p95_ms", "max_ms", "late_ms", "timer_p95_ms")]
    return [found["session"], str(found["clients"]), *equal, f"{found['pieces']:,}", *times]


# --- resolving -----------------------------------------------------------------------------------------------------------


def resolving(document: Document) -> list[str]:
    """How well mentions are resolved, and what it costs."""
    costs = {name: [each for each in document["stages"] if each["kind"].startswith(name)] for name in BARRED}
    shares = [
        [each["set"], each["stage"], str(each["labelled"]), f"{each['precision']:.3f}", f"{each['recall']:.3f}"]
        for each in document["accuracy"]
    ]
    times = [
        [
            each["kind"],
            *(figure(each[name]) for name in ("p50_ms", "p99_ms")),
            f"{figure(each['server_ms'])} + {figure(each['postgres_ms'])}",
        ]
        for each in document["stages"]
    ]
    bars = [
        [f"p50 of {name} < {bar:g} ms (the slowest line)", f"{figure(worst)} ms", met(worst < bar)]
        for name, bar in BARRED.items()
        for worst in [max(float(each["p50_ms"]) for each in costs[name])]
    ]
    return [
        *table(("sentences", "stage", "mentions", "precision", "recall"), shares),
        *table(("asked", "p50 ms", "p99 ms", "CPU ms + Postgres"), times),
        *table(BARS, bars),
        *HOW,
        *bullets(
            f"Two tenants have {document['things']:,} things and as many aliases each, with names of made-up words; one "
            "also has the business that the labelled sentences (`tests/fixtures/mentions-*.txt`) are about. A mention counts "
            "as right if its words, its thing and its stage are the labelled ones.",
            "`tuning` was in view when the rules were written. `heldout` came afterwards, and added one.",
            "Stages are asked through `EntityStore.look_up`, one round trip, one at a time; whole texts through "
            "`Resolver.study`. The database of the business's own is a list in memory.",
        ),
    ]


BARRED = {"stages 1 and 2": KNOWN_MS, "stages 1 to 3": NEAR_MS}
"""Milliseconds by the beginning of a line."""


# --- soak ----------------------------------------------------------------------------------------------------------------


def soak(document: Document) -> list[str]:
    """The long run."""
    first, last = document["samples"][0], document["samples"][-1]
    *_, half, after = document["at_rest"]
    rows = []
    for name, steep in document["slopes"].items():
        memory = [f"{each['resident'][name]:.0f}" for each in (first, last)]
        rest = [str(each[what][name]) for what in ("files", "threads") for each in (half, after)]
        rows.append([name, *memory, f"{figure(steep['per_hour'])} ± {figure(steep['error'])}", *rest])
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(document["done"].items()))
    tasks = "" if half["tasks"] is None else f", tasks of the server {half['tasks']:g} → {after['tasks']:g}"
    head = ("", "MB, first", "last", "MB an hour, second half", "files at rest, after half", "after all")
    rate = ratio(sum(document["done"].values()), 60 * document["minutes"])
    return [
        *table((*head, "threads at rest, after half", "after all"), rows),
        *paragraph(
            f"{document['minutes']:g} minutes, {document['clients']} clients, {rate:.1f} deeds a second: {done}. "
            f"{document['degraded']:,} answers without memory, {sum(document['errors'].values())} errors. At rest, "
            f"after half and after all: connections to Postgres {half['connections']} → {after['connections']}{tasks}; data "
            f"{first['data_mb']:.0f} → {last['data_mb']:.0f} MB, spool {last['spool_mb']:.0f} MB."
        ),
        *paragraph("**Passed.**" if not document["against"] else f"**Failed:** {'; '.join(document['against'])}."),
        *HOW,
        *bullets(
            "Clients that do one thing after another, by chance: streams, plain answers, clients that leave before or in "
            "the middle of a stream, requests with memory off, reads, searches. The worker learns beside. Deadlines are the "
            "usual ones.",
            "Every ten seconds: memory (of a page that processes share, each one's part), files, threads, connections. The "
            "slope is a least-squares line over the second half, of what the processes hold for themselves: shared buffers "
            "fill up to their size. Flat is up to 20 MB an hour, or twice the slope's own error.",
            "Leaked is what is held at rest after all of it and was not at rest after half: what opens when it is first "
            "needed has done so by then. Connections count when there are more than the pools may hold; files beside them.",
        ),
    ]
