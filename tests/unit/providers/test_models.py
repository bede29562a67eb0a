"""The model table: names, what beats what, reserves and costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.providers.models import MODELS, REASONING_RESERVE, ModelRegistry
from tests.support.tables import each_of


@each_of(
    ("model", "window"),
    [
        ("gpt-4o", 128_000),
        ("openai/gpt-4o", 128_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("gpt-4o-search-preview", 128_000),
        ("chatgpt-4o-latest", 8192),  # nobody's row: the default
        ("gpt-4", 8192),
        ("gpt-4-0613", 8192),
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("gpt-4.1-nano-2025-04-14", 1_047_576),
        ("gpt-5-mini", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.9-chat-latest", 128_000),
        ("gpt-5.9-turbo", 400_000),
        ("gpt-6.2-sol", 1_050_000),
        ("gpt-6.7", 1_050_000),
        ("o3-mini-2025-01-31", 200_000),
        ("ft:gpt-4o-2024-08-06:acme::x1", 128_000),
        ("ft:o4-mini-2025-04-16:acme::x1", 200_000),
        ("claude-opus-4-8", 200_000),
        ("anthropic/claude-sonnet-4-5-20250929", 200_000),
        ("meta-llama/Llama-3.1-8B", 8192),
        ("", 8192),
    ],
)
def test_windows(model: str, window: int) -> None:
    assert ModelRegistry().window(model) == window


def test_what_beats_what() -> None:
    registry = ModelRegistry(windows={"gpt-4o": 1000, "llama-*": 2000, "llama-3*": 3000}, default_window=500)
    registry.learn("gpt-4o", 64_000)
    registry.learn("tiny", 4096)
    registry.learn("o3", 32_000)
    registry.learn("bad", 0)
    assert registry.window("gpt-4o") == 1000  # settings before the upstream
    assert registry.window("o3") == 32_000  # the upstream before the table
    assert registry.window("tiny") == 4096
    assert registry.window("bad") == 500
    assert registry.window("llama-2-7b") == 2000
    assert registry.window("meta/llama-3-8b") == 3000  # the longest pattern
    registry.learn("tiny", 8192)
    assert registry.window("tiny") == 8192


def test_an_upstream_cannot_fill_the_memory() -> None:
    registry = ModelRegistry()
    for i in range(ModelRegistry.LEARNED_KEPT + 10):
        registry.learn(f"m{i}", 1000)
    assert registry.window(f"m{ModelRegistry.LEARNED_KEPT + 5}") == 8192


def test_the_clients_own_limit_is_the_reserve() -> None:
    registry = ModelRegistry()
    assert registry.response_reserve("gpt-4o", 500) == 500
    assert registry.response_reserve("gpt-4", 100_000) == 8192  # never more than the window
    assert registry.response_reserve("gpt-4o", 0) == 4096


def test_without_a_limit_the_model_decides() -> None:
    registry = ModelRegistry()
    assert registry.response_reserve("gpt-4o", None) == 4096
    assert registry.response_reserve("gpt-4", None) == 2048  # a quarter of a small window
    assert registry.response_reserve("o3", None) == 25_000  # reasoning and answer together
    registry.learn("tiny", 512)
    assert registry.response_reserve("tiny", None) == 128
    registry.learn("gpt-5", 131_072)  # another server's idea of that name: the table's limits do not hold there
    assert registry.response_reserve("gpt-5", None) == 4096


def test_a_prompt_limit_of_its_own_is_kept() -> None:
    """gpt-5 takes 272,000 prompt tokens of its 400,000 even when a short answer is asked for."""
    registry = ModelRegistry()
    assert registry.window("gpt-5") - registry.response_reserve("gpt-5", 100) == 272_000
    assert registry.window("gpt-6-sol") - registry.response_reserve("gpt-6-sol", None) == 922_000


@given(st.sampled_from([*MODELS, "tiny", "x/y"]), st.none() | st.integers(-5, 2_000_000))
def test_a_reserve_is_always_inside_the_window(model: str, requested: int | None) -> None:
    registry = ModelRegistry()
    assert 0 < registry.response_reserve(model, requested) <= registry.window(model)


def test_costs_in_microcents() -> None:
    registry = ModelRegistry()
    # gpt-4o: 2.50 US$ per million prompt tokens are 250 micro-cents each, 10 US$ are 1,000.
    assert registry.cost_microcents("gpt-4o", 1, 0) == 250
    assert registry.cost_microcents("gpt-4o-2024-08-06", 1000, 100) == 350_000
    assert registry.cost_microcents("gpt-4o", 1_000_000, 0) == 250_000_000  # 2.50 US$
    assert registry.cost_microcents("gpt-4o", 1000, 0, cached_tokens=400) == 600 * 250 + 400 * 125
    assert registry.cost_microcents("gpt-4o", 10, 0, cached_tokens=99) == 10 * 125
    assert registry.cost_microcents("gpt-5-nano", 1, 1) == 45
    assert registry.cost_microcents("gpt-5-nano", 1, 0, cached_tokens=1) == 1  # half a micro-cent rounds up


def test_unknown_prices_are_none_and_cost_nothing() -> None:
    registry = ModelRegistry()
    for model in ("tiny", "gpt-5.9-turbo", "gpt-oss-20b", "ft:o4-mini:acme::x"):
        assert registry.price(model) is None
        assert registry.cost_microcents(model, 1000, 1000) == 0


def test_a_tuned_model_has_its_own_price() -> None:
    registry = ModelRegistry()
    assert registry.cost_microcents("ft:gpt-4o-mini-2024-07-18:acme::x", 1, 0) == 30
    assert registry.cost_microcents("gpt-4o-mini", 1, 0) == 15


def test_long_prompts_cost_more_where_openai_says_so() -> None:
    registry = ModelRegistry()
    assert registry.cost_microcents("gpt-5.4", 272_000, 0) == 272_000 * 250
    assert registry.cost_microcents("gpt-5.4", 300_000, 10) == 300_000 * 500 + 10 * 2250
    assert registry.cost_microcents("gpt-4.1", 300_000, 0) == 300_000 * 200


def test_settings_beat_the_table() -> None:
    registry = ModelRegistry(prices={"gpt-4o": (1.1, 2.2), "llama*": (0.07, 0.3)})
    assert registry.cost_microcents("gpt-4o", 100, 10, cached_tokens=50) == 100 * 110 + 10 * 220
    assert registry.cost_microcents("llama-3", 100, 0) == 700


def test_every_row_is_sound() -> None:
    for name, row in MODELS.items():
        assert row.window > 0, name
        assert 0 <= row.max_output <= row.window, name
        assert row.max_prompt > row.window // 2, name
        assert not row.reasoning or row.max_output >= REASONING_RESERVE, name
        if row.price is not None:
            assert "*" not in name, "a family has no price"
            assert row.price.cached is None or 0 < row.price.cached < row.price.prompt, name
