"""The two tools by which a model asks for what was moved out of its window: offered in the client's own bytes, and read.

`memory_query(question)` is answered from the full content of the conversation's objects, `memory_restore(object_id)` shows one
of them in full. The client never sees them: `stream`, `body` and `forms` keep their calls back, and put
them into later requests (docs/explanation/paging-streams.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import Insertion, dump, entries, replace_value
from app.json_text import read_json

MAX_ROUNDS = 4
"""Legs of one turn that may end in calls that are answered. After these one more is told that the limit is reached, and its
answer comes from a request without the tools. Each round costs the client a whole prompt's latency."""
MAX_CALLS = 8
"""Phantom calls of one leg that are kept and answered; what is called beyond is dropped as if it had not been."""
MAX_ARGUMENTS_CHARS = 8192
"""Of a phantom call's arguments that are kept: four times the longest question, for escapes and white space."""
MAX_QUESTION_CHARS = 2000
"""A question is a sentence or two; the search reads no more (compare QUERY_CHARS in `context.transcript`)."""
MAX_OBJECT_ID_CHARS = 200
"""A handle has some forty."""
QUOTED_CHARS = 80
"""Of what a model wrote that is quoted back to it when it is wrong."""
MAX_NAME_CHARS = 64
"""OpenAI's limit for the name of a function."""
_TRIES = 20
"""Numbered names that are tried when the plain ones are taken."""

LIMIT_REACHED = (
    "The limit of memory look-ups in one answer is reached. "
    "Answer now with what you have, and say what you could not look up."
)

PAGED = frozenset({"chat", "messages"})
"""The dialects that are paged (`forms`)."""

Reason = Literal[
    "dialect",
    "several-choices",
    "legacy-functions",
    "tool-choice-none",
    "tool-choice-forced",
    "tool-choice-without-tools",
    "tools-unread",
]


class Names(Struct, frozen=True):
    """What the two tools are called in one request."""

    query: str = "memory_query"
    restore: str = "memory_restore"

    def __contains__(self, name: object) -> bool:
        return name in (self.query, self.restore)

    def __iter__(self) -> Iterator[str]:
        return iter((self.query, self.restore))


class ToolInsertion(NamedTuple):
    """What adds the tools to a request's own bytes. `tools`: as the request names them."""

    insertions: list[Insertion]
    names: Names
    tools: list[dict[str, Any]]


def offer(chat: ChatRequest) -> ToolInsertion | Reason:
    """Add the tools behind the client's own, so that these keep their place in the upstream's prefix; nothing else changes. Or
    why the request gets none.

    `required` stays satisfiable by the client's tools alone, because it stands in every leg: a call of ours only puts off the
    call of its own that the client gets.
    """
    if (reason := _declined(chat)) is not None:
        return reason
    tools: Sequence[Mapping[str, Any]] = chat.document.get("tools") or ()
    names = names_in(chat)
    made_tools = definitions(names)
    if chat.dialect.name == "messages":
        made_tools = [_tool_of(each) for each in made_tools]
    ours = b",".join(dump(each) for each in made_tools)
    span = chat.envelope.members.get("tools")
    if span is None:
        return ToolInsertion([Insertion(chat.envelope.array_end, b',"tools":[' + ours + b"]")], names, made_tools)
    if not tools:
        made = replace_value(chat.envelope, "tools", [])
        assert made is not None, "it is a member"
        return ToolInsertion([made._replace(data=b"[" + ours + b"]")], names, made_tools)
    *_, (_, last) = entries(chat.body, span.start)
    return ToolInsertion([Insertion(last.end, b"," + ours)], names, made_tools)


def _declined(chat: ChatRequest) -> Reason | None:
    document = chat.document
    if chat.dialect.name not in PAGED:
        return "dialect"
    n = document.get("n")
    if n is not None and n != 1:
        return "several-choices"  # each would fault for itself, and the legs of one belong to none of the others
    if document.get("functions") or document.get("function_call"):
        return "legacy-functions"  # upstreams refuse both forms in one request
    tools, choice = document.get("tools"), document.get("tool_choice")
    if chat.dialect.name == "messages":
        choice = _choice_of(choice)
    if tools is not None and not (isinstance(tools, list) and all(isinstance(each, dict) for each in tools)):
        return "tools-unread"  # the upstream says what is wrong with them
    if choice == "none":
        return "tool-choice-none"
    if choice is not None and not tools:
        return "tool-choice-without-tools"  # an error that only the client's own tools would mend
    if choice not in (None, "auto", "required"):
        return "tool-choice-forced"
    return None


def _choice_of(choice: object) -> object:
    """A `tool_choice` of `/v1/messages` as chat completions call it; what they have no name for, as it is."""
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    return {"auto": "auto", "any": "required", "none": "none"}.get(kind, choice) if isinstance(kind, str) else choice


def _tool_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of chat completions as one of `/v1/messages`."""
    given = tool["function"]
    return {"name": given["name"], "description": given["description"], "input_schema": given["parameters"]}


def names_in(chat: ChatRequest) -> Names:
    """What the tools are called in a request, whether it gets them or not: what is shown shorter tells how to ask."""
    tools = chat.document.get("tools")
    found = [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
    bodies = [body for each in found for body in (each.get("function"), each.get("custom"), each)]
    names = [each.get("name") for each in bodies if isinstance(each, Mapping)]
    return choose_names(frozenset(each for each in names if isinstance(each, str)))


def choose_names(taken: frozenset[str]) -> Names:
    """Names that the client's tools do not have. Where it can be had, none is the beginning of another: then a name that came
    in one piece is known at once."""
    return Names(*(_free(each, taken) for each in Names()))


def _free(name: str, taken: frozenset[str]) -> str:
    candidates = [name, f"mneme_{name}", *(f"mneme_{name}_{n}" for n in range(2, _TRIES))]
    for each in candidates:
        if not any(own.startswith(each) or each.startswith(own) for own in taken):
            return each
    longer = (candidates[-1] + "_" * n for n in range(MAX_NAME_CHARS - len(candidates[-1])))
    last = candidates[-1].ljust(MAX_NAME_CHARS, "_")
    return next((each for each in (*candidates, *longer) if each not in taken), last)


def definitions(names: Names) -> list[dict[str, Any]]:
    return [
        _function(
            names.query,
            "Look something up in the parts of this conversation that are shown shortened or only by their handle. Ask one "
            "precise question; the answer is drawn from their full content.",
            "question",
            "The question, with the names, paths or numbers that it is about.",
        ),
        _function(
            names.restore,
            "Show one shortened part of this conversation in full again. Use it when an answer to a question would not do.",
            "object_id",
            "The handle of the part, as it stands beside it.",
        ),
    ]


def _function(name: str, description: str, parameter: str, meaning: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {parameter: {"type": "string", "description": meaning}},
        "required": [parameter],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


# --- what a model calls --------------------------------------------------------------------------------------------------


class PhantomCall(Struct, frozen=True):
    """A finished call of one of the tools.

    `position`: among all calls of its message. `arguments`: as the model wrote them, up to MAX_ARGUMENTS_CHARS; `cut`: there
    was more. `other`: fields that some upstreams want back with a call (Gemini: a signature of what it thought).
    """

    id: str
    name: str
    arguments: str
    position: int = 0
    cut: bool = False
    other: Mapping[str, Any] = field(default_factory=dict)

    def as_sent(self) -> dict[str, Any]:
        """The call as it goes back to the upstream. Arguments that are no JSON object become `{}`: vLLM parses those of earlier
        calls and refuses the request otherwise. What was wrong stands in the call's result."""
        arguments = self.arguments if isinstance(_parsed(self), dict) else "{}"
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
            **self.other,
        }


class Query(NamedTuple):
    """`memory_query`."""

    question: str


class Restore(NamedTuple):
    """`memory_restore`. Whether there is such an object, and whose, the caller has to see."""

    object_id: str


class InvalidCall(NamedTuple):
    """A call that cannot be run; `result` tells the model what is wrong with it."""

    result: str


def read_call(call: PhantomCall, names: Names) -> Query | Restore | InvalidCall:
    """What a call asks for. Never raises: a model may write anything."""
    parameter, limit = "question", MAX_QUESTION_CHARS
    if call.name == names.restore:
        parameter, limit = "object_id", MAX_OBJECT_ID_CHARS
    example = f'Call {call.name} with {{"{parameter}": "…"}}.'
    if call.cut:
        return InvalidCall(f"The arguments are longer than {MAX_ARGUMENTS_CHARS} characters. {example}")
    given = _parsed(call)
    if not isinstance(given, dict):
        return InvalidCall(f"The arguments are not a JSON object: {_quoted(call.arguments)}. {example}")
    value = given.get(parameter)
    if not isinstance(value, str) or not value.strip():
        return InvalidCall(f"The argument {parameter} is missing, empty or not a text. {example}")
    value = value.strip()
    if len(value) > limit:
        return InvalidCall(f"The argument {parameter} has {len(value)} characters; at most {limit} are read. {example}")
    return Restore(value) if parameter == "object_id" else Query(value)


def unknown_object(object_id: str) -> str:
    """The result for an id that is none of this user's conversation: the same whether it is another's or nobody's."""
    return f"There is no part with the handle {_quoted(object_id)} in this conversation. Use a handle exactly as it is shown."


def _parsed(call: PhantomCall) -> object:
    if call.cut:
        return None
    try:
        return read_json(call.arguments)
    except ValueError:
        return None


def _quoted(text: str) -> str:
    shown = text[:QUOTED_CHARS]
    return f'"{shown}…"' if len(text) > QUOTED_CHARS else f'"{shown}"'


# --- what goes back to the upstream --------------------------------------------------------------------------------------


class NeedsLeg(Struct, frozen=True):
    """A leg has ended in phantom calls alone. Run them, and send the request once more with `message` and their results behind
    its messages (`results`); what comes back is the next leg.

    `last`: the limit is reached. Run nothing, answer every call with LIMIT_REACHED, and send the request without the tools.
    """

    calls: tuple[PhantomCall, ...]
    message: dict[str, Any]
    last: bool = False


class PendingCalls(Struct, frozen=True):
    """An answer has ended in phantom calls beside the client's own. The client has its calls; these are answered when it comes
    back with their results (`body.insertions`)."""

    calls: tuple[PhantomCall, ...]


def spoken(text: str, thoughts: Mapping[str, str], calls: Sequence[PhantomCall]) -> dict[str, Any]:
    """The assistant's message that a leg was. `thoughts`: its reasoning, under the names that the upstream gives it: within one
    turn a model goes on from what it thought, and some upstreams refuse the request without."""
    return {
        "role": "assistant",
        "content": text or None,
        **{name: thought for name, thought in thoughts.items() if thought},
        "tool_calls": [each.as_sent() for each in calls],
    }


def results(calls: Sequence[PhantomCall], texts: Sequence[str]) -> list[dict[str, Any]]:
    """The tools' messages, one for each call."""
    return [{"role": "tool", "tool_call_id": each.id, "content": text} for each, text in zip(calls, texts, strict=True)]
