"""What batches save: `python -m loadtests.paging_batches` prints how often the prompt's prefix breaks in an agent's session.

150 turns, each with one tool result of 2,600 tokens on average (log-normal), over three windows; each turn's prompt is what the
policy decides. "One by one" degrades as soon as the border of WARNING is passed, and no more than it must. `broken`:
turns in which any object changed; `again`: tokens from the first change on, which the upstream reads anew, as a part of
all tokens sent.
"""

from __future__ import annotations

import random
from uuid import UUID

from app.features.paging import fidelity
from app.features.paging.fidelity import Moment, applied, decide
from app.features.paging.values import SemanticObject, Zone, shown_tokens
from loadtests.one_by_one import LEAST, TARGET
from tests.unit.paging.made import sized

TURNS = 150
MEAN_TOKENS = 2_600
FIXED_TOKENS = 2_500
"""Tokens of the system prompt and the tools."""
CALL_TOKENS = 40
"""Tokens of a turn beside its result: the call."""
SEED = 1


def session(budget: int) -> tuple[int, float, int, int]:
    """(turns broken, share read again, tokens sent, most of the budget used, per cent) of one session."""
    chance = random.Random(SEED)
    objects: list[SemanticObject] = []
    zone = Zone.NORMAL
    broken = again = sent = most = 0
    for turn in range(TURNS):
        objects.append(sized(turn, 200 + int(0.73 * MEAN_TOKENS * chance.lognormvariate(0, 0.8)), turn=turn))
        moment = Moment(turn, budget, FIXED_TOKENS + CALL_TOKENS * turn, zone)
        decision = decide(objects, [], moment)
        changed: set[UUID] = {each.object_id for each in decision.transitions}
        first = next((i for i, each in enumerate(objects) if each.id in changed), turn)
        objects, zone = applied(objects, decision, moment), decision.zone
        broken += bool(changed)
        again += sum(shown_tokens(each, each.fidelity) for each in objects[first:])
        sent += decision.tokens
        most = max(most, 100 * decision.tokens // budget)
    return broken, again / sent, sent, most


def main() -> None:
    batched = fidelity.TARGET, fidelity.MIN_BATCH
    print(f"{'window':>8} {'':<12}{'broken':>8}{'again':>8}{'sent':>14}{'fullest':>9}")
    for budget in (32_000, 64_000, 128_000):
        for name, (target, least) in (("one by one", (TARGET, LEAST)), ("in batches", batched)):
            fidelity.TARGET, fidelity.MIN_BATCH = target, least
            broken, again, sent, most = session(budget)
            print(f"{budget:>8,} {name:<12}{broken:>8}{again:>8.2f}{sent:>14,}{most:>8} %")
    fidelity.TARGET, fidelity.MIN_BATCH = batched


if __name__ == "__main__":
    main()
