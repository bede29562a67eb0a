"""Prepare the rules of all languages after a start, so that the first message in each is read as fast as later ones."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from app.languages import heard
from app.memory.candidate import SourceExchange, guessed
from app.memory.commands import commands
from app.memory.extract import extract
from app.tasks import FailOpen

STATEMENTS = (
    "I have a dog.",
    "Ich habe einen Hund und wohne in Köln.",
    "Tengo un perro y vivo en Madrid.",
    "J'ai un chien et j'habite à Lyon.",
    "Eu tenho um cão e moro em Lisboa.",
    "我住在北京，我有一只狗。",
)
"""A statement in each language that has rules."""
COMMANDS = (
    "Forget that I have a dog.",
    "Vergiss, dass ich einen Hund habe.",
    "Olvida que tengo un perro.",
    "Oublie que j'ai un chien.",
    "Esquece que eu tenho um cão.",
    "忘记我有一只狗。",
)
"""A command in each of these languages."""

log = logging.getLogger("mneme")


def read_sentence(text: str, now: datetime) -> None:
    """Run the rules that read each message, so that those of the text's language are loaded and compiled."""
    extract(SourceExchange(text, now))
    commands(text)
    guessed(text)
    heard(text)


async def rehearse_languages(now: datetime) -> None:
    """Read each of `STATEMENTS` and `COMMANDS` in a thread, some 25 ms of CPU and 0.4 MB for a language. A failure is
    logged, and ends nothing but the rehearsal."""
    with FailOpen(log.warning, "the rules of languages are prepared with the first message in each"):
        for sentence in (*STATEMENTS, *COMMANDS):
            await asyncio.to_thread(read_sentence, sentence, now)
