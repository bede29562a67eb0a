"""What confirms that all may be forgotten, and what does not."""

from __future__ import annotations

from app.features.commands.commander import asks_leave, confirms
from tests.support.tables import each_of


@each_of(
    "text",
    [
        "Yes", "Yes, please do.", "Yes, forget it.", "ok, do it", "Delete it.", "Sí, por favor", "Ja, bitte.",
        "oui, efface tout", "Sim, pode apagar", "是的", "好的，删吧。",
    ],
)  # fmt: skip
def test_yes_and_nothing_else_confirms(text: str) -> None:
    assert confirms(text)


@each_of(
    "text",
    [
        "ok", "ok, keep everything", "ok, tell me about Rome", "ok cool, what's the weather?", "ok never mind",
        "ok cancel that", "forget it", "Sure about that? I'd rather keep it.", "Yes?", "ja, nein", "sim, cancela",
        "oui, annule", "是的，取消", "对了，今天天气怎么样？", "好吃吗", "是谁",
    ],
)  # fmt: skip
def test_a_prefix_that_says_yes_confirms_nothing(text: str) -> None:
    assert not confirms(text)


@each_of(
    ("answer", "asks"),
    [
        ("Do you want me to forget everything?", True),
        ("That would be 12 items. Please confirm.", True),
        ("您确定要我忘记一切吗？", True),
        ("Soll ich wirklich alles vergessen?", True),
        ("I can forget that. Would you like a recipe?", False),
        ("All right.", False),
        ("", False),
    ],
)
def test_leave_is_asked_by_the_last_question(answer: str, asks: bool) -> None:
    assert asks_leave(answer) is asks
