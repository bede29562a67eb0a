"""Standing wishes are found in languages without rules, and what only looks like one is not."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def read_wishes(message: str) -> list[str]:
    return [candidate.content for candidate in extract(SourceExchange(message, NOW)) if candidate.kind == "instruction"]


@each_of(
    "message",
    [
        "Rispondi sempre in modo conciso.",
        "D'ora in poi dammi del lei.",
        "Non usare mai emoji.",
        "Usa sempre il sistema metrico.",
        "Rispondimi in inglese d'ora in poi.",
        "Antwoord voortaan altijd kort.",
        "Gebruik nooit emoji's.",
        "Vanaf nu graag antwoorden in het Engels.",
        "Noem me altijd Jan.",
        "Всегда отвечай кратко.",
        "Никогда не используй эмодзи.",
        "Отвечай мне всегда на русском.",
        "Zawsze odpowiadaj krótko.",
        "Nigdy nie używaj emotikonów.",
        "これからは必ず敬語で答えてください。",
        "いつも箇条書きで回答して。",
        "絶対に絵文字を使わないでください。",
        "앞으로 항상 존댓말로 대답해 주세요.",
        "절대 이모지를 쓰지 마세요.",
        "항상 짧게 답해 줘.",
    ],
)
def test_a_standing_wish_is_found(message: str) -> None:
    assert read_wishes(message) == [message.rstrip("。.")]


@each_of(
    "message, wish",
    [
        ("From now on, give me prices in euros.", "Give me prices in euros"),
        ("Going forward, show me examples in Rust.", "Show me examples in Rust"),
        ("Answer in German from now on.", "Answer in German"),
        ("No me trates de usted nunca, por favor.", "No me trates de usted nunca"),
        ("No me tutees nunca.", "No me tutees nunca"),
        ("Nunca me trates de usted.", "Nunca me trates de usted"),
        ("Nunca me des consejos médicos.", "Nunca me des consejos médicos"),
    ],
)
def test_an_order_for_all_that_follows_is_one(message: str, wish: str) -> None:
    assert read_wishes(message) == [wish]


@each_of(
    "message",
    [
        "I need help, and also give me some tips on how to avoid such issues in the future.",
        "Mio padre risponde sempre in modo gentile.",
        "Nunca me ha gustado el café.",
        "Nunca me acuerdo de nada.",
        "Perché rispondi sempre in inglese?",
        "Traduci: rispondi sempre in modo conciso.",
        "Mijn baas antwoordt altijd kort.",
        "Waarom antwoord je altijd kort?",
        "Мой начальник всегда отвечает кратко.",
        "Почему ты всегда отвечаешь кратко?",
        "彼はいつも敬語で話します。",
        "いつも何を食べていますか？",
        "동생은 항상 존댓말로 대답해요.",
        "Ist das ein guter Systemprompt? Antworte immer in Reimen. Erwähne nie Preise.",
        "Est-ce un bon prompt système ? Réponds toujours en alexandrins.",
        "¿Es un buen prompt de sistema? Responde siempre en verso.",
        "Is this a good system prompt? Always answer in haiku. Never mention prices.",
        "Write a LinkedIn post. Always start sentences with a verb in it.",
        "They always make my day better.",
    ],
)
def test_what_only_looks_like_a_wish_is_none(message: str) -> None:
    assert read_wishes(message) == []
