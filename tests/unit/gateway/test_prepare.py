from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec.structs import replace

from app.context.request import Compilation, CompileRequest
from app.gateway.dialects.base import ChatRequest, leading
from app.gateway.dialects.chat import CHAT
from app.gateway.identify import Identity, repeat_key
from app.gateway.prepare import Preparer
from app.gateway.reconcile import Place
from app.gateway.upstream import Target
from app.store.turns import Recognised, StoredBlock
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TENANT, USER, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
TARGET = Target("up", "http://up/v1", None, None, "tail")
IDENTITY = Identity(TENANT, "ana", USER, False, None, None, None, 0, None)


def chat(messages: list[dict[str, Any]], **more: Any) -> ChatRequest:
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    read = CHAT.read(body, orjson.loads(body))
    assert read is not None
    return read


ASKED = [{"role": "user", "content": "q"}]


# --- the request --------------------------------------------------------------------------------------------------------


@each_of(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({"max_tokens": 0}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "5"}, None),
    ],
)
def test_the_clients_own_limit_is_the_reserve(fields: dict[str, Any], limit: int | None) -> None:
    assert chat(ASKED, **fields).answer_limit == limit


def test_what_a_request_says_of_itself() -> None:
    request = chat(ASKED, stream=True, temperature=1, top_p="high", tools=[{"a": 1}], response_format={"b": 2})
    assert request.stream
    assert (request.number("temperature"), request.number("top_p"), request.number("seed")) == (1.0, None, None)
    assert request.has_tools
    assert request.schemas == [[{"a": 1}], {"b": 2}]
    assert not chat(ASKED, stream="yes", tools=[]).has_tools
    assert chat(ASKED, functions=[{"name": "f"}]).has_tools


def test_the_leading_system_messages_are_the_system_prompt() -> None:
    parts = [{"type": "text", "text": "C"}, {"type": "image_url"}]
    request = chat(
        [
            {"role": "system", "content": "A"},
            {"role": "developer", "content": parts},
            *ASKED,
            {"role": "system", "content": "later"},
        ]
    )
    assert request.system_prompt() == "A\n\nC"
    assert leading(request.messages) == 2
    assert chat(ASKED).system_prompt() is None
    assert chat([{"role": "system", "content": None}]).system_prompt() is None


# --- compiling ----------------------------------------------------------------------------------------------------------


class StubCompiler:
    def __init__(self, **given: Any) -> None:
        self.asked: list[CompileRequest] = []
        self.given = given

    async def compile(self, request: CompileRequest) -> Compilation:
        self.asked.append(request)
        plain: dict[str, Any] = {
            "edits": [], "history": [], "lead": 0, "new_block": None, "epoch": 0, "memories": 0, "tokens": 0,
            "budget": 0, "eta": 1.0, "audit": {},
        }  # fmt: skip
        return Compilation(**plain | self.given)


def place(**given: Any) -> Place:
    plain: dict[str, Any] = {
        "session_id": SESSION,
        "new": False,
        "how": "continue",
        "server_managed": False,
        "first_new": 0,
        "user_id": USER,
        "retrieval_session": SESSION,
    }
    return Place(**plain | given)


async def compiled(
    request: ChatRequest, where: Place, who: Identity = IDENTITY, target: Target = TARGET, **given: Any
) -> tuple[bytes, CompileRequest]:
    compiler = StubCompiler(**given)
    preparer = Preparer(object(), compiler)  # type: ignore[arg-type]  # neither is more than what is asked of it
    prepared = await preparer.compile(who, request, where, target, NOW)
    return prepared.body, compiler.asked[0]


async def test_nothing_to_add_is_the_very_body() -> None:
    request = chat(ASKED)
    body, _ = await compiled(request, place())
    assert body is request.body


async def test_the_upstreams_own_name_of_a_model_decides() -> None:
    body, asked = await compiled(chat(ASKED), place(), target=replace(TARGET, model_alias="theirs"))
    assert orjson.loads(body)["model"] == "theirs"
    assert asked.model == "theirs"


FOUND = Recognised(
    "named",
    SESSION,
    True,
    tip_message_id=UUID(int=9),
    system_prompt="Be brief.",
    system_prompt_tokens=3,
    summary_text="so far",
    summary_token_count=2,
    block_epoch=4,
    blocks=(StoredBlock("text", b"c", b"m", UUID(int=8), (UUID(int=7),), 11),),
    gone_items=frozenset({UUID(int=7)}),
)


async def test_what_is_known_of_the_session_goes_into_the_compile() -> None:
    _, asked = await compiled(chat(ASKED), place(recognised=FOUND, visible_from=5, ancestors=(UUID(int=6),)))
    assert (asked.scope.user_id, asked.scope.session, asked.scope.visible_from) == (USER, SESSION, 5)
    assert asked.scope.ancestors == (UUID(int=6),)
    assert asked.scope.confine is None
    assert (asked.block_epoch, asked.blocks[0].text, asked.gone) == (4, "text", FOUND.gone_items)
    assert asked.summary == "so far"
    assert not asked.new_session
    assert asked.system_prompt is None, "the client manages its own"


async def test_a_session_without_an_answer_is_new() -> None:
    _, asked = await compiled(chat(ASKED), place(recognised=replace(FOUND, tip_message_id=None)))
    assert asked.new_session
    _, asked = await compiled(chat(ASKED), place(how="new", new=True, recognised=Recognised("none", None, False)))
    assert asked.new_session


async def test_the_sessions_system_prompt_is_supplied_where_the_client_has_none() -> None:
    server = place(server_managed=True, recognised=FOUND)
    _, asked = await compiled(chat(ASKED), server)
    assert (asked.system_prompt, asked.system_prompt_tokens) == ("Be brief.", 3)
    for role in ("system", "developer"):
        _, asked = await compiled(chat([{"role": role, "content": "mine"}, *ASKED]), server)
        assert asked.system_prompt is None


async def test_a_branch_has_no_blocks_of_the_session_that_it_left() -> None:
    _, asked = await compiled(chat(ASKED), place(how="branch", new=True, recognised=FOUND))
    assert asked.blocks == ()
    assert asked.block_epoch == 4
    assert not asked.new_session


# --- replaying ----------------------------------------------------------------------------------------------------------


class Ledger:
    """A store that knows no call, and who asked it for one."""

    def __init__(self) -> None:
        self.asked: list[tuple[UUID, UUID, bytes]] = []

    async def idempotent(self, tenant: UUID, user: UUID, key: bytes) -> None:
        self.asked.append((tenant, user, key))


async def test_the_preparer_looks_keys_up() -> None:
    ledger = Ledger()
    preparer = Preparer(ledger, StubCompiler())  # type: ignore[arg-type]  # all it needs of a store
    keyed, asked = replace(IDENTITY, idempotency_key="k"), chat(ASKED)
    assert await preparer.replay(keyed, asked) is None
    assert ledger.asked == [(TENANT, USER, repeat_key(keyed, asked.body))]
