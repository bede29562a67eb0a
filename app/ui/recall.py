"""Which memories are wanted: the filters of a page, and what the API finds by them."""

from __future__ import annotations

from typing import Any, get_args

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from app.context.score import AUTO
from app.store.memory_rows import Kind, Status
from app.ui.visit import Visit, whole_number
from app.ui.within import Refused

PAGE = 50
"""Rows of a page."""
MOST_FOUND = 50
"""Best finds of a search: who looks further asks better."""
SEARCH_TOKENS = 20_000
"""Tokens of all finds together, so that a few long ones do not crowd out the rest; some 400 of each of them."""

TIERS = {1: "session", 2: "episodic", 3: "semantic", 4: "procedural"}
"""Tiers that a memory of its own may have; 0 is the working memory of a session."""
KINDS: tuple[str, ...] = get_args(Kind)
AGAINST = frozenset(name for name, weight in AUTO.weights.items() if weight < 0)
"""Signals that lower the score."""
SEEN = 0.005
"""What is less is 0.00 on the page."""
STATUSES: tuple[str, ...] = tuple(each for each in get_args(Status) if each != "forgotten")
"""Of what can still be read."""
IN_FORCE = ("active", "aging")
ALL = "all"


class Wanted(Struct, frozen=True):
    """The filters as they were typed; an empty one is none. `tags`: several, with commas between. `said`: messages, too."""

    q: str = ""
    tier: str = ""
    kind: str = ""
    status: str = ""
    tags: str = ""
    metadata: str = ""
    said: str = ""

    @classmethod
    def of(cls, visit: Visit) -> Wanted:
        """What the request asks for."""
        return cls(**{name: visit.query(name) or "" for name in cls.__struct_fields__})

    @property
    def query(self) -> dict[str, str]:
        """For links to the same list."""
        return asdict(self)

    @property
    def narrowed(self) -> bool:
        """Whether anything is left out that is in force."""
        return self != Wanted() and self != Wanted(status=ALL)

    def listing(self) -> dict[str, Any]:
        """The query of GET /memories."""
        return {
            "tier": self.tier,
            "kind": self.kind,
            "status": self.status,
            "tag": words(self.tags),
            "metadata": self.metadata,
        }

    def searching(self) -> dict[str, Any]:
        """The body of POST /memories/search. Raises Refused for metadata that are no object."""
        kinds = [self.kind] if self.kind else [*KINDS, *(("message", "turn", "passage") if self.said else ())]
        return {
            "query": self.q,
            "k": MOST_FOUND,
            "token_budget": SEARCH_TOKENS,
            "kinds": kinds,
            "history": self.status not in ("", *IN_FORCE),
            **({"tiers": [tier(self.tier)]} if self.tier else {}),
            **({"tags": words(self.tags)} if self.tags else {}),
            **({"metadata": json_object(self.metadata)} if self.metadata else {}),
        }

    def keeps(self, status: str) -> bool:
        """Whether a find of this status is wanted; the search's route tells only what is in force from all."""
        return self.status in ("", ALL, status)


class Found(Struct, frozen=True):
    """`memories`: of a list; `items`: of a search, which has no further pages. `problem`: why there is nothing."""

    memories: list[dict[str, Any]]
    items: list[dict[str, Any]]
    next: str | None = None
    took_ms: float | None = None
    problem: str | None = None


async def find(visit: Visit, user: str | None, wanted: Wanted) -> Found:
    """List what is wanted, or search among it. `user` None: of all users, where the key may."""
    try:
        if not wanted.q:
            page = await visit.api.get(
                "memories", user=user, limit=PAGE, cursor=visit.query("cursor"), **wanted.listing()
            )
            return Found(page["memories"], [], page["next"])
        if user is None:
            return Found([], [], problem="A search looks among the memories of one user: say whose.")
        body = {"user": user, **wanted.searching()}
        found = await visit.api.send("POST", "memories", "search", body=body)
    except Refused as refused:
        if refused.status != 400:
            raise
        return Found([], [], problem=refused.message)
    kept = [
        {**each, "signals": told(each["signals"]), "raw": each["kind"] not in KINDS}
        for each in found["items"]
        if wanted.keeps(each["status"])
    ]
    return Found([], kept, took_ms=found["took_ms"])


def told(signals: dict[str, float]) -> list[tuple[str, float, bool]]:
    """The signals that say something, the strongest first: name, value, and whether it counts against the find."""
    heard = [(name.replace("_", " "), value, name in AGAINST) for name, value in signals.items() if abs(value) >= SEEN]
    return sorted(heard, key=lambda each: (-abs(each[1]), each[0]))


# --- what was typed -----------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """“home, travel” → ["home", "travel"]."""
    return [each for part in text.split(",") if (each := part.strip())]


def tier(text: str) -> int | str:
    """A tier by its number or, as the API takes it too, its name."""
    found = whole_number(text)
    return text if found is None else found


def json_object(text: str) -> dict[str, Any]:
    """A JSON object; empty: {}. Raises Refused."""
    try:
        value = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise Refused(400, f'Metadata are a JSON object, as in {{"from": "crm"}}; this is none: {error}.') from None
    if not isinstance(value, dict):
        raise Refused(400, 'Metadata are a JSON object, as in {"from": "crm"}; this is another value.')
    return value


def written(value: object) -> str:
    """A JSON value for people: a text as it is, several with commas between, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if isinstance(value, dict) else 0).decode()
