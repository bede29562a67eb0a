"""Whether one text denies another."""

from __future__ import annotations

import pytest

from app.memory.compare import contrast


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("Wants meetings on Friday", "Never wants meetings on Friday", "denied"),
        ("Likes early meetings", "Hates early meetings", "denied"),
        ("Answers should be long", "Answers should be short", "denied"),
        ("Has 2 cats", "Has 3 cats", "changed"),
        ("Wants no sugar in tea", "Wants no milk in tea", None),
        ("Has 2 cats", "Has 3 dogs", None),
        ("Drinks tea", "Drinks coffee", None),
        ("Likes tea", "Likes tea a lot", None),
        ("Las respuestas deben ser largas", "Las respuestas deben ser cortas", "denied"),
        ("Quiere las reuniones el viernes", "No quiere las reuniones el viernes", "denied"),
        ("Quiere té con azúcar", "Quiere té sin azúcar", "denied"),
        ("Las respuestas deben ser largas", "Las respuestas deben ser amables", None),
        ("Die Antworten sollen lang sein", "Die Antworten sollen kurz sein", "denied"),
        ("Mag Treffen am Freitag", "Mag keine Treffen am Freitag", "denied"),
        ("Die Antworten sollen lang sein", "Die Antworten sollen freundlich sein", None),
        ("Les réponses doivent être longues", "Les réponses doivent être courtes", "denied"),
        ("Il veut des réunions le vendredi", "Il ne veut pas de réunions le vendredi", "denied"),
        ("As respostas devem ser longas", "As respostas devem ser curtas", "denied"),
        ("Quer reuniões na sexta", "Não quer reuniões na sexta", "denied"),
        ("喜欢长的回答", "喜欢短的回答", "denied"),
        ("喜欢周五开会", "不喜欢周五开会", "denied"),
        ("家里有2只猫", "家里有3只猫", "changed"),
        ("喜欢喝茶", "喜欢喝咖啡", None),
    ],
)
def test_one_text_denies_another(one: str, other: str, how: str | None) -> None:
    assert contrast(one, other) == how
    assert contrast(other, one) == how
