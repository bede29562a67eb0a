"""Memories: listed, searched, added by hand; one of them, what became of it, and what can be done about it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import orjson
from msgspec import Struct
from msgspec.structs import asdict
from starlette.responses import Response

from app.context.score import AUTO
from app.features.ui.rendering import ours, url
from app.features.ui.visit import Entry, Refused, Visit, or_none, whole_number
from app.store.kinds import KINDS
from app.store.memories import Status

PAGE = 50
"""Rows of a page."""
MOST_FOUND = 50
"""Best finds of a search: who looks further asks better."""
SEARCH_TOKENS = 20_000
"""Tokens of all finds together, so that a few long ones do not crowd out the rest; some 400 of each of them."""
SEEN = 0.005
"""What is less is 0.00 on the page."""
MOST_BEFORE = 100
"""Memories whose place one took that its page shows: wordings merge by the dozen."""
TIERS = {1: "session", 2: "episodic", 3: "semantic", 4: "procedural"}
"""Tiers that a memory of its own may have; 0 is the working memory of a session."""
STATUSES: tuple[str, ...] = tuple(each for each in get_args(Status) if each != "forgotten")
"""Of what can still be read."""
IN_FORCE = ("active", "aging")
ALL = "all"
AGAINST = frozenset(name for name, weight in AUTO.weights.items() if weight < 0)
"""Signals that lower the score."""
MEMORY_EVENTS = {
    "created": ("Learned", "good"),
    "merged": ("Said better, and merged", "info"),
    "reinforced": ("Said again", "good"),
    "promoted": ("Promoted", "good"),
    "demoted": ("Demoted", "warn"),
    "decayed": ("Faded", ""),
    "rated": ("Rated by an outcome", ""),
    "aging": ("In doubt", "warn"),
    "asked": ("The user was asked", "info"),
    "confirmed": ("Confirmed", "good"),
    "edited": ("Edited", "info"),
    "invalidated": ("Not true any more", "bad"),
    "expired": ("Expired", ""),
    "restored": ("Brought back", "good"),
    "superseded": ("Another took its place", "info"),
    "deleted": ("Forgotten", "bad"),
}
"""What the history calls it: (in words, tone)."""
ACTORS = {"system": "Mneme", "user": "the user, in a conversation", "api": "a client (API or page)"}
WRITTEN_BY_HAND = "Added"
"""What a memory is that a client says outright, rather than learned."""
Shape = Literal["text", "memory", "moment", "plain"]
_SHAPES: dict[str, Shape] = {
    "text": "text",
    "memory_id": "memory",
    "superseded_by": "memory",
    "corrects": "memory",
    "expires_at": "moment",
}


# --- all of them ---------------------------------------------------------------------------------------------------------


async def listed(visit: Visit) -> Response:
    wanted = MemoryQuery.of(visit)
    user = visit.query("user") or (visit.principal.user_external_id if visit.principal else None)
    return visit.render(
        "memories.html",
        user=user,
        wanted=wanted,
        found=await find(visit, user, wanted),
        tiers=TIERS,
        kinds=KINDS,
        statuses=STATUSES,
    )


async def blank(visit: Visit) -> Response:
    return _form(visit, None, {})


async def add(visit: Visit) -> Response:
    given = await visit.form()
    said = {name: str(value).strip() for name, value in given.items()}
    try:
        body: dict[str, Any] = {
            "text": said.get("text", ""),
            "kind": said.get("kind", "fact"),
            "tags": words(said.get("tags", "")),
            "metadata": json_object(said.get("metadata", "")),
        }
        for name in ("user", "session"):
            if said.get(name):
                body[name] = said[name]
        if said.get("tier"):
            body["tier"] = tier(said["tier"])
        if said.get("importance"):
            body["importance"] = share(said["importance"])
        made = await visit.api.send("POST", "memories", body=body)
    except Refused as refused:
        if refused.status not in (400, 404, 409):
            raise
        return _form(visit, refused, said)
    return visit.redirect(
        url("memories", made["id"]),
        "Remembered." if made["created"] else "This was known already: it counts one more time.",
    )


def _form(visit: Visit, problem: Refused | None, given: Mapping[str, str]) -> Response:
    return visit.render(
        "memory_new.html",
        status=problem.status if problem else 200,
        problem=problem.message if problem else None,
        given=given,
        user=given.get("user") or visit.query("user") or "",
        confined=visit.principal is not None and visit.principal.user_external_id is not None,
        tiers=TIERS,
        kinds=KINDS,
    )


# --- which are wanted ----------------------------------------------------------------------------------------------------


class MemoryQuery(Struct, frozen=True):
    """The filters as they were typed; an empty one is none. `tags`: several, with commas between. `said`: messages, too."""

    q: str = ""
    tier: str = ""
    kind: str = ""
    status: str = ""
    tags: str = ""
    metadata: str = ""
    said: str = ""

    @classmethod
    def of(cls, visit: Visit) -> MemoryQuery:
        return cls(**{name: visit.query(name) or "" for name in cls.__struct_fields__})

    @property
    def query(self) -> dict[str, str]:
        """For links to the same list."""
        return asdict(self)

    @property
    def narrowed(self) -> bool:
        """Whether anything is left out that is in force."""
        return self != MemoryQuery() and self != MemoryQuery(status=ALL)

    def listing(self) -> dict[str, Any]:
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


class MemoryList(Struct, frozen=True):
    """`memories`: of a list; `items`: of a search, which has no further pages. `problem`: why there is nothing."""

    memories: list[dict[str, Any]]
    items: list[dict[str, Any]]
    next: str | None = None
    took_ms: float | None = None
    problem: str | None = None


async def find(visit: Visit, user: str | None, wanted: MemoryQuery) -> MemoryList:
    """List what is wanted, or search among it. `user` None: of all users, where the key may."""
    try:
        if not wanted.q:
            page = await visit.api.get(
                "memories", user=user, limit=PAGE, cursor=visit.query("cursor"), **wanted.listing()
            )
            return MemoryList(page["memories"], [], page["next"])
        if user is None:
            return MemoryList([], [], problem="A search looks among the memories of one user: say whose.")
        body = {"user": user, **wanted.searching()}
        found = await visit.api.send("POST", "memories", "search", body=body)
    except Refused as refused:
        if refused.status != 400:
            raise
        return MemoryList([], [], problem=refused.message)
    kept = [
        {**each, "signals": told(each["signals"]), "raw": each["kind"] not in KINDS}
        for each in found["items"]
        if wanted.keeps(each["status"])
    ]
    return MemoryList([], kept, took_ms=found["took_ms"])


def told(signals: dict[str, float]) -> list[tuple[str, float, bool]]:
    """The signals that say something, the strongest first: name, value, and whether it counts against the find."""
    heard = [(name.replace("_", " "), value, name in AGAINST) for name, value in signals.items() if abs(value) >= SEEN]
    return sorted(heard, key=lambda each: (-abs(each[1]), each[0]))


# --- what was typed ------------------------------------------------------------------------------------------------------


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


# --- one -----------------------------------------------------------------------------------------------------------------


class Change(Struct, frozen=True):
    """A line of an event: what was so before, and after; None: nothing is said of it."""

    name: str
    shape: Shape
    before: str | None
    after: str | None


class TimelineEvent(Struct, frozen=True):
    at: str
    title: str
    tone: str
    actor: str
    changes: list[Change]


def event(told: Mapping[str, Any]) -> TimelineEvent:
    title, tone = MEMORY_EVENTS.get(told["event"], (str(told["event"]), ""))
    if told["event"] == "created" and told["actor"] == "api":
        title = WRITTEN_BY_HAND
    before, after = told["before"] or {}, told["after"] or {}
    names = sorted({*before, *after}, key=lambda name: (name != "text", name))
    changes = [
        Change(name.replace("_", " "), _SHAPES.get(name, "plain"), _said(before, name), _said(after, name))
        for name in names
    ]
    return TimelineEvent(
        told["at"],
        title,
        tone,
        ACTORS.get(told["actor"], str(told["actor"])),
        [each for each in changes if each.before != each.after],
    )


def _said(side: Mapping[str, Any], name: str) -> str | None:
    if name not in side:
        return None
    value = side[name]
    if value is None:
        return None if _SHAPES.get(name) in ("memory", "moment") else "none"
    return f"{value:.2f}" if isinstance(value, float) else written(value)


# --- shown ---------------------------------------------------------------------------------------------------------------


async def page(visit: Visit, *, problem: Refused | None = None, given: Mapping[str, Any] | None = None) -> Response:
    """GET /ui/memories/{memory}. `problem`: why what was `given` in a form was refused."""
    name, api = visit.segment("memory"), visit.api
    found = await api.get("memories", name, user=visit.query("user"))
    memory = str(found["id"])
    history, before, heir = await asyncio.gather(
        api.get("memories", memory, "history", limit=PAGE, cursor=visit.query("cursor")),
        api.get("memories", user=found["user"], superseded_by=memory, status="all", limit=MOST_BEFORE),
        _heir(visit, found["superseded_by"]),
    )
    return visit.render(
        "memory.html",
        status=problem.status if problem else 200,
        memory=found,
        events=[event(each) for each in history["events"]],
        next=history["next"],
        before=before["memories"],
        heir=heir,
        problem=problem.message if problem else None,
        given=given,
        written=written,
        expiry=_minute(found["expires_at"]),
        in_force=found["status"] in IN_FORCE,
        tiers=TIERS,
        kinds=KINDS,
    )


async def _heir(visit: Visit, memory: str | None) -> Any:
    return None if memory is None else await or_none(visit.api.get("memories", memory), 404)  # forgotten since


# --- done ----------------------------------------------------------------------------------------------------------------


async def edit(visit: Visit) -> Response:
    """POST /ui/memories/{memory}: change it in place; what it said before stays in its history."""
    given = await visit.form()
    memory = visit.segment("memory")
    held = await visit.api.get("memories", memory)
    try:
        body = changed(held, {name: str(value) for name, value in given.items()})
        if not body:
            return visit.redirect(url("memories", memory), "Nothing was changed.")
        await visit.api.send("PATCH", "memories", memory, body=body)
    except Refused as refused:
        if refused.status not in (400, 409):
            raise
        return await page(visit, problem=refused, given=given)
    return visit.redirect(url("memories", memory), "Corrected. What it said before is in its history.")


def changed(held: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Of a form's fields those that differ from what is held, as PATCH takes them. Raises Refused."""
    body: dict[str, Any] = {}
    if "text" in given:
        body["text"] = given["text"].replace("\r\n", "\n").strip()
    if "kind" in given:
        body["kind"] = given["kind"]
    if given.get("tier"):
        body["tier"] = tier(given["tier"])
    if "tags" in given:
        body["tags"] = words(given["tags"])
    if "metadata" in given:
        body["metadata"] = json_object(given["metadata"])
    for name in ("importance", "confidence"):
        if name in given and given[name].strip() != f"{held[name]:.2f}":
            body[name] = share(given[name])
    if "expires_at" in given and given["expires_at"].strip() != _minute(held["expires_at"]):
        body["expires_at"] = given["expires_at"].strip() or None
    return {name: value for name, value in body.items() if value != held[name]}


async def confirm(visit: Visit) -> Response:
    """POST …/confirm: it is still right."""
    return await _do(visit, "Confirmed.", "validate", {"answer": "yes"})


async def replace(visit: Visit) -> Response:
    """POST …/replace: something else is so; another memory takes its place."""
    given = await visit.form()
    memory = visit.segment("memory")
    body = {"answer": "no", "correction": str(given.get("correction", "")).replace("\r\n", "\n").strip()}
    try:
        judged = await visit.api.send("POST", "memories", memory, "validate", body=body)
    except Refused as refused:
        if refused.status not in (400, 409):
            raise
        return await page(visit, problem=refused, given=given)
    return visit.redirect(
        _back(given, url("memories", judged["correction"]["id"])), "Corrected: this memory has taken its place."
    )


async def invalidate(visit: Visit) -> Response:
    """POST …/invalidate: the memory is not true (any more). A second click changes nothing."""
    form = await visit.form()
    memory = visit.segment("memory")
    reason = str(form.get("reason", "")).strip()
    try:
        await visit.api.send("POST", "memories", memory, "invalidate", body={"reason": reason or None})
    except Refused as refused:
        if refused.status not in (400, 409):
            raise
        if (await visit.api.get("memories", memory))["status"] != "invalidated":
            return await page(visit, problem=refused)
    return visit.redirect(_back(form, url("memories", memory)), "Not used any more; it can be brought back.")


async def restore(visit: Visit) -> Response:
    return await _do(visit, "Brought back.", "restore", None)


async def ask_to_forget(visit: Visit) -> Response:
    """GET …/forget: what forgetting means, and whether it is meant."""
    found = await visit.api.get("memories", visit.segment("memory"))
    return visit.render("memory_forget.html", memory=found)


async def forget(visit: Visit) -> Response:
    await visit.form()
    memory = visit.segment("memory")
    user = (await visit.api.get("memories", memory))["user"]
    await visit.api.send("DELETE", "memories", memory)
    after = url("users", user, tab="memories") if user is not None else url("memories")
    return visit.redirect(
        after,
        "Forgotten: no search, prompt or history has its words any more. What was said until now does not bring it back.",
    )


async def _do(visit: Visit, notice: str, action: str, body: dict[str, Any] | None) -> Response:
    given = await visit.form()
    memory = visit.segment("memory")
    try:
        await visit.api.send("POST", "memories", memory, action, body=body)
    except Refused as refused:
        if refused.status not in (400, 409):
            raise
        return await page(visit, problem=refused)
    return visit.redirect(_back(given, url("memories", memory)), notice)


def _back(given: Mapping[str, Any], otherwise: str) -> str:
    """The list that the button stood in."""
    return ours(str(given.get("next", "")), otherwise)


def share(text: str) -> float:
    """A number from 0 to 1; whether it is one of these the route says. Raises Refused for what is no number."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):  # in JSON these would be null
        raise Refused(400, "Importance and confidence are numbers from 0 to 1; confidence is at most 0.95.")
    return found


def _minute(moment: str | None) -> str:
    """2031-09-03T08:15:00Z → 2031-09-03T08:15, as browsers' fields write a moment; it is in UTC."""
    return moment[:16] if moment else ""


ROUTES = (
    Entry("/memories", listed),
    Entry("/memories/new", blank),
    Entry("/memories/new", add, ("POST",)),
    Entry("/memories/{memory}", page),
    Entry("/memories/{memory}", edit, ("POST",)),
    Entry("/memories/{memory}/confirm", confirm, ("POST",)),
    Entry("/memories/{memory}/replace", replace, ("POST",)),
    Entry("/memories/{memory}/invalidate", invalidate, ("POST",)),
    Entry("/memories/{memory}/restore", restore, ("POST",)),
    Entry("/memories/{memory}/forget", ask_to_forget),
    Entry("/memories/{memory}/forget", forget, ("POST",)),
)
