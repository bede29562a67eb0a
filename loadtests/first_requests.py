"""Measure what the first request of each kind after a start costs beside the second: `python -m loadtests.first_requests`.

Each start answers requests of one kind alone, each from another user, so nothing that another kind prepared helps. A time is
the median over the starts, in milliseconds: what the client waits, and the CPU time of the server's process. The mock upstream
answers at once: the time is what Mneme adds.
"""

from __future__ import annotations

import http.client
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import orjson
from rich.console import Console
from rich.table import Table

from loadtests.arrivals import usual_settings
from loadtests.bench import ended_by_sigterm
from loadtests.serving import HOST
from loadtests.stack import Service, Stack, StackFailed, running

REQUEST_COUNT = 3
"""Requests of each kind after each start; the table shows the first and the second."""
REQUEST_TIMEOUT_S = 30.0
SETTLE_S = 1.0
"""Seconds between readiness and the first request, as a client needs to notice that the server is ready."""
TEXTS = {
    "question": (
        "What did we plan for the trip to Porto?",
        "Which colour did I want for the kitchen?",
        "Where do I work?",
    ),
    "small talk": (
        "Tell me a joke about cats, please.",
        "Write a haiku about rain.",
        "Translate this into Latin: I came.",
    ),
    "fact": ("My sister Ines lives in Porto.", "My brother Paul works for Siemens.", "I'm allergic to peanuts."),
    "remember": (
        "Remember that I prefer tea.",
        "Remember that my car is blue.",
        "Please remember that I work from home.",
    ),
    "forget": ("Forget where I live.", "Forget that I have a dog.", "Please forget my address."),
    "correction": (
        "No, I live in Berlin, not in Lisbon.",
        "Actually, my dog is called Max.",
        "I no longer live in Lisbon.",
    ),
    "German": ("Ich wohne in Köln und habe einen Hund.", "Meine Schwester heißt Anna.", "Wo wohne ich?"),
    "Spanish": ("Vivo en Madrid y tengo un perro.", "Mi hermana se llama Ana.", "¿Dónde vivo?"),
    "French": ("J'habite à Lyon et j'ai un chien.", "Ma sœur s'appelle Anne.", "Où est-ce que j'habite ?"),
    "Portuguese": ("Eu moro em Lisboa e tenho um cão.", "A minha irmã chama-se Ana.", "Onde é que eu moro?"),
    "Chinese": ("我住在北京，我有一只狗。", "我的妹妹叫小红。", "我住在哪里？"),
    "German forget": ("Vergiss, wo ich wohne.", "Vergiss, dass ich einen Hund habe.", "Bitte vergiss meine Adresse."),
}
"""Texts of chats, by kind."""
LEARNED = "My name is Ana. I live in Lisbon. I have a dog called Rex. My favourite colour is green."
"""A message that each user sent before the starts that are measured."""


class Request(NamedTuple):
    """One HTTP request of a user."""

    method: str
    path: str
    body: Mapping[str, object] | None


class Cost(NamedTuple):
    """The time that one request took, in milliseconds."""

    wall_ms: float
    cpu_ms: float


def build_chat(text: str, user: str, stream: bool = False) -> Request:
    """Return a chat completion that says `text`."""
    messages = [{"role": "user", "content": text}]
    return Request("POST", "/v1/chat/completions", {"model": "any", "messages": messages, "stream": stream})


def build_kinds() -> dict[str, Callable[[int, str], Request]]:
    """Return by kind what builds the request with a number, of a user."""
    facts = TEXTS["fact"]
    kinds: dict[str, Callable[[int, str], Request]] = {
        kind: lambda number, user, texts=texts: build_chat(texts[number], user)  # type: ignore[misc]
        for kind, texts in TEXTS.items()
    }
    kinds["stream"] = lambda number, user: build_chat(facts[number], user, stream=True)
    kinds["/v1/responses"] = lambda number, user: Request(
        "POST", "/v1/responses", {"model": "any", "input": facts[number]}
    )
    kinds["/v1/messages"] = lambda number, user: Request(
        "POST",
        "/v1/messages",
        {"model": "any", "max_tokens": 100, "messages": [{"role": "user", "content": facts[number]}]},
    )
    kinds["/v1/models"] = lambda number, user: Request("GET", "/v1/models", None)
    kinds["/api/v1/memories"] = lambda number, user: Request("GET", f"/api/v1/memories?user={user}", None)
    kinds["/api/v1/search"] = lambda number, user: Request(
        "POST", "/api/v1/search", {"user": user, "query": TEXTS["question"][number]}
    )
    kinds["/ui"] = lambda number, user: Request("GET", "/ui", None)
    return kinds


def read_cpu_ms(pid: int) -> float:
    """Return the CPU time that a process has taken so far, of its threads that still run, in milliseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def read_memory_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "Linux says it of each process that runs"
    return int(found[1]) / 1024


def send(connection: http.client.HTTPConnection, pid: int, request: Request, user: str) -> Cost:
    """Send a request and read its whole answer. Raises StackFailed where it is refused."""
    body = orjson.dumps(request.body) if request.body is not None else None
    headers = {"content-type": "application/json", "x-mneme-user": user}
    cpu_ms, began = read_cpu_ms(pid), time.perf_counter()
    connection.request(request.method, request.path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    wall_ms = 1000 * (time.perf_counter() - began)
    if answer.status not in (200, 303, 307, 308, 404):  # the mock upstream has no /v1/messages
        raise StackFailed(f"{request.path} was answered with {answer.status}: {text[:500]!r}")
    return Cost(wall_ms, read_cpu_ms(pid) - cpu_ms)


class Start(NamedTuple):
    """The cost of one start: until it was ready, and for its first requests."""

    ready: Cost
    memory_mb: float
    costs: Sequence[Cost]


def measure_start(stack: Stack, build: Callable[[int, str], Request], users: Sequence[str], settle_s: float) -> Start:
    """Start a server on the stack's database, and send it the requests of one kind."""
    environment = {**stack.environment, "MNEME_DATABASE_URL": stack.dsn}
    began = time.perf_counter()
    service = Service("first", ["-m", "app.cli", "serve", "--port", "0"], stack.folder, environment)
    try:
        port = service.port(r"running on http://127\.0\.0\.1:([0-9]+)")
        ready = Cost(1000 * (time.perf_counter() - began), read_cpu_ms(service.pid))
        time.sleep(settle_s)
        memory_mb = read_memory_mb(service.pid)
        connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_TIMEOUT_S)
        costs = []
        for number, user in enumerate(users):
            costs.append(send(connection, service.pid, build(number, user), user))
            time.sleep(0.2)  # what a request leaves behind to do must not count for the next
        connection.close()
        return Start(ready, memory_mb, costs)
    finally:
        service.stop()


def median(costs: Sequence[Cost]) -> Cost:
    """Return the medians of the times."""
    return Cost(statistics.median(cost.wall_ms for cost in costs), statistics.median(cost.cpu_ms for cost in costs))


@click.command()
@click.option("--starts", default=5, show_default=True, help="Starts for each kind of request.")
@click.option(
    "--kind", "chosen", multiple=True, type=click.Choice(list(build_kinds())), help="Only this kind of request."
)
@click.option("--settle", default=SETTLE_S, show_default=True, help="Seconds from readiness to the first request.")
def first_requests(starts: int, chosen: Sequence[str], settle: float) -> None:
    """Print what the first and the second request of each kind after a start cost."""
    console, table = Console(width=120), Table(box=None)
    for title in ("kind", "first ms", "second ms", "first CPU", "second CPU", "beyond 2x and 20 ms"):
        table.add_column(title, justify="left" if title == "kind" else "right")
    ready: list[Cost] = []
    memory_mb: list[float] = []
    kinds = {kind: build for kind, build in build_kinds().items() if not chosen or kind in chosen}
    with ended_by_sigterm(), running(settings=usual_settings()) as stack:
        connection = http.client.HTTPConnection(HOST, stack.mneme_port, timeout=REQUEST_TIMEOUT_S)
        users = [[f"first-{start}-{number}" for number in range(REQUEST_COUNT)] for start in range(starts * len(kinds))]
        for user in (name for names in users for name in names):
            send(connection, stack.mneme.pid, build_chat(LEARNED, user), user)
        connection.close()
        for kind, build in kinds.items():
            measured = [measure_start(stack, build, users.pop(), settle) for _ in range(starts)]
            ready += [start.ready for start in measured]
            memory_mb += [start.memory_mb for start in measured]
            first, second = (median([start.costs[number] for start in measured]) for number in (0, 1))
            beyond = first.wall_ms > 2 * second.wall_ms and first.wall_ms > second.wall_ms + 20
            figures = [f"{ms:.1f}" for ms in (first.wall_ms, second.wall_ms, first.cpu_ms, second.cpu_ms)]
            console.log(kind, *figures)
            table.add_row(kind, *figures, "yes" if beyond else "")
    took = median(ready)
    console.print(table)
    console.print(
        f"ready after {took.wall_ms:.0f} ms, CPU {took.cpu_ms:.0f} ms; memory {statistics.median(memory_mb):.1f} MB"
    )


if __name__ == "__main__":
    first_requests()
