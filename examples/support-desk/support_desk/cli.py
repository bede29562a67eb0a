"""`support-desk CUSTOMER QUESTION`: one question, its answer as it comes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from support_desk.desk import Desk, DeskClosed


def main(arguments: Sequence[str] | None = None) -> int:
    """0 with an answer, 1 without."""
    parser = argparse.ArgumentParser(prog="support-desk", description="Ask the support desk.")
    parser.add_argument("customer")
    parser.add_argument("question")
    parser.add_argument("--no-lookups", action="store_true", help="Answer piece by piece, without looking at orders.")
    given = parser.parse_args(arguments)
    with Desk(given.customer) as desk:
        try:
            for piece in desk.stream(given.question) if given.no_lookups else [desk.answer(given.question)]:
                print(piece, end="", flush=True)
            print()
        except DeskClosed as error:
            print(f"\n{error}")
            return 1
    return 0
