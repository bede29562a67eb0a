"""Which refusals are of what Mneme added. (What comes of them: test_turn, test_legs.)"""

from __future__ import annotations

from app.gateway.forward import is_about_length, is_about_tools
from tests.support.tables import each_of


@each_of(
    "said",
    [
        b'"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',  # vLLM
        b'{"error":{"message":"registry.ollama.ai/library/gemma:2b does not support tools"}}',  # Ollama
        b"No endpoints found that support tool use.",  # OpenRouter
        b"tools param requires --jinja flag",  # llama.cpp
        b"Function calling is not enabled for this model",
    ],
)
def test_refusals_of_tools(said: bytes) -> None:
    assert is_about_tools(said)
    assert not is_about_length(said)


def test_a_refusal_for_length_is_none_of_tools() -> None:
    said = b"This model's maximum context length is 5 tokens; you asked for 9 (8 in messages, 1 in the tools)."
    assert is_about_length(said)
    assert not is_about_tools(said)
    assert not is_about_tools(b"temperature must be at most 2")
