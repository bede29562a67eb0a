"""Which sentences take a standing wish back, in six languages, and which only seem to."""

from __future__ import annotations

from uuid import UUID

from app.features.commands.grammar import WITHDRAWS, StoredMemory, commands, taken_back
from tests.support.tables import each_of


def withdrawn(text: str) -> list[tuple[str, str]]:
    return [(each.kind, each.about) for each in commands(text) if each.kind in WITHDRAWS]


@each_of(
    ("text", "kind", "about"),
    [
        ("No more bullet points please", "stop", "bullet points"),
        ("you don't have to answer in bullet points any more", "stop", "in bullet points"),
        ("Please don't answer me in French any more.", "stop", "in French"),
        ("You no longer need to cite sources.", "stop", "sources"),
        ("Thanks! No more bullet points, please.", "stop", "bullet points"),
        ("you can suggest cilantro again", "allow", "cilantro"),
        ("It's fine to use emojis again.", "allow", "emojis"),
        ("No más viñetas, por favor.", "stop", "viñetas"),
        ("Ya no hace falta que respondas con viñetas.", "stop", "con viñetas"),
        ("Deja de responder con viñetas.", "stop", "con viñetas"),
        ("Puedes sugerir cilantro otra vez.", "allow", "cilantro"),
        ("Bitte keine Stichpunkte mehr.", "stop", "Stichpunkte"),
        ("Du brauchst keine Stichpunkte mehr zu verwenden.", "stop", "Stichpunkte"),
        ("Du darfst Koriander wieder vorschlagen.", "allow", "Koriander"),
        ("Je ne veux plus de listes à puces.", "stop", "listes à puces"),
        ("Tu n'as plus besoin de répondre en listes à puces.", "stop", "en listes à puces"),
        ("Tu peux de nouveau proposer de la coriandre.", "allow", "de la coriandre"),
        ("Não precisa mais responder em tópicos.", "stop", "em tópicos"),
        ("Chega de tópicos, por favor.", "stop", "tópicos"),
        ("Pode voltar a sugerir coentro.", "allow", "coentro"),
        ("你不用再用要点回答了。", "stop", "要点"),
        ("别再用要点了", "stop", "要点"),
        ("现在可以推荐香菜了。", "allow", "香菜"),
    ],
)
def test_what_takes_a_wish_back(text: str, kind: str, about: str) -> None:
    assert withdrawn(text) == [(kind, about)]


@each_of(
    "text",
    [
        "No more than three sentences please",
        "No more bullet points in this answer.",
        "No more bullet points for now.",
        "No more bullet points. Just kidding.",
        "Fix the grammar. no more bullet points.",
        "Summarize. You can suggest cilantro again.",
        "Here is the email. No more bullet points. Regards, Tom",
        "What does this mean? No more bullet points.",
        "*No more bullet points*",
        "No more bullet points, my boss said.",
        "My boss says: no more bullet points",
        'She wrote "no more bullet points" on the slide.',
        "If I ask for code, no more bullet points.",
        "No más de tres frases, por favor.",
        "Nicht mehr als drei Sätze.",
        "Plus de détails, s'il te plaît.",
        "Não mais que três frases.",
        "Can you suggest cilantro again?",
        "I can eat cilantro again.",
    ],
)
def test_what_only_seems_to(text: str) -> None:
    assert withdrawn(text) == []


WISHES = [
    StoredMemory(UUID(int=n), text, None, None, None, True)
    for n, text in enumerate(
        [
            "Always answer me in bullet points",
            "Never suggest cilantro",
            "Answer in French and cite your sources",
            "Use short answers",
            "Give answers with examples",
            "Antworte immer in Stichpunkten",
            "请永远不要推荐香菜",
            "Add comments to the code",
            "N'utilise jamais d'emojis",
        ]
    )
]


@each_of(
    ("about", "allows", "meant", "clear"),
    [
        ("bullet points", False, [0], True),
        ("bullet points", True, [], True),
        ("cilantro", True, [1], True),
        ("cilantro", False, [], True),
        ("sources", False, [2], False),
        ("short answers", False, [3], True),
        ("answers", False, [0, 2, 3, 4], False),
        ("it", False, [], True),
        ("Stichpunkte", False, [5], True),
        ("香菜", True, [6], True),
        ("commas", False, [], True),
        ("des emojis", True, [8], True),
        ("comment", False, [7], True),
    ],
)
def test_which_wishes_are_meant(about: str, allows: bool, meant: list[int], clear: bool) -> None:
    found = taken_back(about, WISHES, "en", allows=allows)
    assert sorted(each.memory_id.int for each in found.wishes) == meant
    assert found.clear == clear


@each_of(
    ("text", "about"),
    [
        ("Forget the name of my therapist.", "the name of my therapist"),
        ("Please forget the birthday of my sister.", "the birthday of my sister"),
        ("Vergiss den Namen meines Zahnarztes.", "meines Zahnarztes"),
        ("Oublie le nom de mon médecin.", "mon médecin"),
        ("Olvida el nombre de mi dentista.", "mi dentista"),
        ("Esqueça o nome do meu médico.", "o meu médico"),
    ],
)
def test_the_name_of_somebody_is_forgotten(text: str, about: str) -> None:
    assert [(command.kind, command.about) for command in commands(text)] == [("forget", about)]
