"""A talk as it goes upstream: what a user states, and what the user tells memory to do, with each prompt as it was sent.

python -m loadtests.told [--latency TURNS]

There is no worker: what a turn states is known to the next request. `--latency`: milliseconds, and
the server's CPU, of turns that state something and of turns that do not.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping

import click
import httpx

from loadtests.cpu import cpu_s
from loadtests.stack import Stack, running
from loadtests.work import MODEL, PATH

KEPT = f"{MODEL}:chunks=4;keep=1"
TIMEOUT_S = 60.0
USER = {"X-Mneme-User": "bob", "Authorization": "Bearer sk-none"}

FIRST = (
    "Hi! I'm Bob. I work as a data engineer at Acme in Porto, my wife Maria is allergic to peanuts, and our daughter Inês "
    "turns 5 on March 3rd.",
    "Actually we moved to Berlin last month. And I left Acme, I'm freelancing now.",
    "I hate cilantro, never suggest it.",
    "Always answer me in bullet points.",
)
"""One conversation."""

THEN = (
    "What snack should I pack for a family trip?",
    "Where do I live?",
    "Who do I work for?",
    "What is 17 times 23?",
    "Please forget that I worked at Acme.",
    "What companies have I worked for?",
    "What do you know about me?",
)
"""Each in a new one."""

TURNS = {
    "states something": "I live in Lisbon, I have {n} cats and I like tea with lemon.",
    "states nothing": "How many legs do {n} spiders have together, and why is that?",
}


def transcript(stack: Stack) -> Iterator[str]:
    """The talk as text."""
    with httpx.Client(base_url=stack.base_url, headers=USER, timeout=TIMEOUT_S, trust_env=False) as client:
        messages: list[dict[str, str]] = []
        for said in FIRST:
            messages.append({"role": "user", "content": said})
            answer = client.post(PATH, json={"model": KEPT, "messages": messages}).raise_for_status()
            messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
            yield _shown(stack, said)
        for said in THEN:
            body = {"model": KEPT, "messages": [{"role": "user", "content": said}]}
            client.post(PATH, json=body).raise_for_status()
            yield _shown(stack, said)
        yield "--- what is in force afterwards"
        for each in client.get("/api/v1/memories", params={"user": "bob"}).json()["memories"]:
            yield f"{each['kind']}: {each['text']}"
        for each in client.get("/api/v1/commands", params={"user": "bob"}).json()["commands"]:
            yield f"{each['kind']} {each['scope']}: {each['outcome']}, {len(each['items'])} items"


def _shown(stack: Stack, said: str) -> str:
    prompt = json.loads(stack.received()[-1])["messages"]
    sent = "\n".join(f"[{each['role']}] {each['content']}" for each in prompt[-1:])
    return f"--- said: {said}\n{sent}\n"


def latency(stack: Stack, turns: int) -> Iterator[str]:
    """Of each sort of turn median and 95th percentile, and the server's CPU, ms; and what learning with the turn took of it."""
    with httpx.Client(base_url=stack.base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        for name, text in TURNS.items():
            headers = {**USER, "X-Mneme-User": name}
            _turns(client, headers, text, 10)  # warm
            began, learned, times = cpu_s(stack.mneme.pid), *_learning(client)
            took = _turns(client, headers, text, turns)
            cpu = (cpu_s(stack.mneme.pid) - began) / turns * 1000
            learned, times = (after - before for after, before in zip(_learning(client), (learned, times), strict=True))
            p50, p95 = statistics.median(took), statistics.quantiles(took, n=20)[18]
            each = learned / times * 1000 if times else 0.0
            yield f"{name}: p50 {p50:.1f}, p95 {p95:.1f}, CPU {cpu:.1f}; learned from {times:.0f} of {turns}, {each:.1f} each"


def _learning(client: httpx.Client) -> tuple[float, float]:
    """Seconds that learning with turns took so far, and of how many."""
    figures = {"sum": 0.0, "count": 0.0}
    for line in client.get("/metrics").text.splitlines():
        for name in figures:
            if line.startswith(f'mneme_stage_seconds_{name}{{stage="learn"}}'):
                figures[name] = float(line.rpartition(" ")[2])
    return figures["sum"], figures["count"]


def _turns(client: httpx.Client, headers: Mapping[str, str], text: str, turns: int) -> list[float]:
    took = []
    for n in range(turns):
        body = {"model": MODEL, "messages": [{"role": "user", "content": text.format(n=n + 2)}]}
        began = time.perf_counter()
        client.post(PATH, json=body, headers=headers).raise_for_status()
        took.append((time.perf_counter() - began) * 1000)
    return took


@click.command()
@click.option("--latency", "turns", type=click.IntRange(20, 10_000), help="Measure so many turns of each sort instead.")
def main(turns: int | None) -> None:
    """Print the talk with its prompts, or what learning with the turn costs."""
    with running() as stack:
        for line in latency(stack, turns) if turns else transcript(stack):
            click.echo(line)


if __name__ == "__main__":
    main()
