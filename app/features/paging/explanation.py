"""What the explanation of a call tells of its paging, and what of it is read back when the call is compiled again. Pure.

Objects that are shown in short are kept by their ids and levels, packed: a session may have hundreds, in each of its calls.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.features.paging.values import Fidelity, PagingRecord, SemanticObject

_ID_BYTES = 16


class RecordedDecision(Struct, frozen=True):
    """What was decided for a call. `shown`: levels of the objects below full; `exchanges`: of the ledger, by the index of their
    answer, and whether the calls beside the client's own were answered; `tools`: the phantom tools stood in it."""

    shown: Mapping[UUID, Fidelity]
    exchanges: Mapping[int, bool]
    tools: bool


def explained(
    record: PagingRecord,
    shown: Iterable[SemanticObject],
    exchanges: Sequence[tuple[int, bool]],
    tools: Iterable[str] | None,
    declined: str | None,
) -> dict[str, Any]:
    """The `paging` part of an explanation. `record`: tokens without memory; `shown`: the objects whose place may change, as
    they are shown; `tools`: names of the phantom tools; None: not offered, for `declined` where it was to be."""
    objects = list(shown)
    short = [each for each in objects if each.fidelity > Fidelity.FULL]
    at = [0] * len(Fidelity)
    for each in objects:
        at[each.fidelity] += 1
    return {
        "turn": record.turn,
        "budget": record.budget,
        "zone": record.zone.value,
        "tokens": record.tokens,
        "shown_tokens": record.shown_tokens,
        "at": at,
        "shown": {
            "ids": b64encode(b"".join(each.id.bytes for each in short)).decode(),
            "levels": "".join(str(int(each.fidelity)) for each in short),
        },
        "transitions": [
            [str(each.object_id), int(each.before), int(each.after), each.trigger.value] for each in record.transitions
        ],
        "exchanges": [list(each) for each in exchanges],
        "tools": list(tools) if tools is not None else None,
        "declined": declined,
    }


def expanded(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part as the API shows it: the objects and what changed by name."""
    if "shown" not in part:
        return dict(part)  # not paged: it says why
    levels = ("L0", "L1", "L2", "L3", "L4")
    told = {key: value for key, value in part.items() if key not in ("at", "shown", "transitions", "exchanges")}
    return told | {
        "objects": dict(zip(levels, part["at"], strict=True)),
        "shown": [{"id": str(key), "fidelity": int(level)} for key, level in read(part).shown.items()],
        "transitions": [
            {"object_id": key, "from_fidelity": before, "to_fidelity": after, "trigger": why}
            for key, before, after, why in part["transitions"]
        ],
        "exchanges": len(part["exchanges"]),
    }


def read(part: Mapping[str, Any]) -> RecordedDecision:
    """What was decided, of what `explained` made."""
    packed = b64decode(part["shown"]["ids"])
    ids = [UUID(bytes=packed[at : at + _ID_BYTES]) for at in range(0, len(packed), _ID_BYTES)]
    levels = [Fidelity(int(each)) for each in part["shown"]["levels"]]
    return RecordedDecision(
        dict(zip(ids, levels, strict=True)),
        dict(part["exchanges"]),
        part["tools"] is not None,
    )
