"""What memory adds to a conversation that hardly needs it.

python -m loadtests.unneeded [--messages N]

A user with a past of some 300 messages, and of whom a few things are known, holds one conversation of 20 turns, 17 of
which have nothing to do with memory. What counts is what the mock upstream received, against what the client sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import click
import httpx
import orjson
from rich.console import Console
from rich.table import Table

from loadtests import fill
from loadtests.stack import Stack, StackFailed, prepare, running
from loadtests.terminal import console, measuring
from loadtests.work import MODEL, PATH

MODEL_KEPT = f"{MODEL}:chunks=40;keep=1"
TIMEOUT_S = 60.0
KNOWN = (
    "I live in Utrecht, in a flat over a bakery.",
    "I work as a landscape architect at Groenwerk.",
    "My son Joris is allergic to walnuts.",
    "Please always answer me in at most three sentences.",
    "I can't stand liquorice, never suggest it.",
)
NEEDING = {4: "Where do I live?", 11: "What could I put into my son's lunch box?", 17: "Who do I work for?"}
"""Turns that need something, by number, from 0."""
UNNEEDING = (
    "What is 38 times 46?",
    "Write a limerick about a lighthouse keeper.",
    "Make it shorter.",
    "Which is heavier, a litre of oil or a litre of water?",
    "Translate “good evening” into Finnish.",
    "Continue.",
    "Sort these: pear, fig, apple, quince.",
    "What does the HTTP status 418 mean?",
    "How many days has a leap year?",
    "Give me a regular expression for a five-digit number.",
    "Now in Python, please.",
    "Thanks, that works.",
    "Explain entropy to a child.",
    "What is the capital of Mongolia?",
    "And how many people live there?",
    "Name three rivers in Peru.",
    "Good night!",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: characters of all messages as the client sent them, and as they went upstream; tokens of the block that it
    was given, and why the blocks were begun anew."""

    question: str
    needs: bool
    client: int
    upstream: int
    block: int
    rebased: str | None


def questions() -> list[tuple[str, bool]]:
    """The user's messages in order, each with whether it needs memory."""
    rest = iter(UNNEEDING)
    return [(NEEDING[n], True) if n in NEEDING else (next(rest), False) for n in range(len(NEEDING) + len(UNNEEDING))]


def characters(messages: list[dict[str, str]]) -> int:
    return sum(len(each["content"]) for each in messages)


def converse(stack: Stack) -> list[Turn]:
    """Hold the conversation."""
    transcript: list[dict[str, str]] = []
    turns: list[Turn] = []
    headers = {"X-Mneme-User": fill.user_name(0), "Authorization": "Bearer sk-none"}
    with httpx.Client(base_url=stack.base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        for question, needs in questions():
            transcript.append({"role": "user", "content": question})
            own = characters(transcript)
            answer = client.post(PATH, json={"model": MODEL_KEPT, "messages": transcript}).raise_for_status()
            transcript.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
            call = answer.headers["x-mneme-call-id"]
            audit = client.get(f"/api/v1/calls/{call}/context").raise_for_status().json()
            block = audit["tokens"] - audit["budget"]["live"] - audit["budget"]["history"]
            turns.append(Turn(question, needs, own, 0, block, audit["rebased"]))
    bodies = stack.received()
    if len(bodies) != len(turns):
        raise StackFailed(f"The upstream was asked {len(bodies)} times in {len(turns)} turns.")
    sent = [characters(orjson.loads(each)["messages"]) for each in bodies]
    return [
        Turn(each.question, each.needs, each.client, up, each.block, each.rebased)
        for each, up in zip(turns, sent, strict=True)
    ]


def tell_known(stack: Stack) -> None:
    """What is known of the user, said in conversations of their own."""
    user = fill.user_name(0)
    lines = [{"session": f"known-{n}", "user": user, "role": "user", "content": text} for n, text in enumerate(KNOWN)]
    body = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in lines)
    headers = {"content-type": "application/x-ndjson"}
    url = f"{stack.base_url}/api/v1/import"
    httpx.post(url, content=body, headers=headers, timeout=TIMEOUT_S, trust_env=False).raise_for_status()


def show(out: Console, turns: list[Turn]) -> None:
    table = Table(
        "turn", "needs", "client", "upstream", "block", "rebased", title="Characters, and tokens of the block"
    )
    for each in turns:
        told = (str(each.client), str(each.upstream), str(each.block), each.rebased or "")
        table.add_row(each.question[:48], "yes" if each.needs else "", *told)
    out.print(table)
    ratio = sum(each.upstream for each in turns) / sum(each.client for each in turns)
    rebases = sum(each.rebased is not None for each in turns)
    out.print(f"characters with memory ÷ without: {ratio:.2f}; rebases: {rebases}")


@click.command()
@click.option("--messages", type=click.IntRange(20, 100_000), default=300, help="Of the user's past.")
def main(messages: int) -> None:
    """Measure what memory adds to a conversation that hardly needs it."""
    out = console()
    with measuring(), out.status("starting …") as status, running() as stack:
        tell_known(stack)
        prepare(stack, 1, messages, status.update)
        with stack.worker():
            turns = converse(stack)
    show(out, turns)


if __name__ == "__main__":
    main()
