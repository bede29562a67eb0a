"""The time of a question in the languages beside English is that of the same question in English."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from app.context.question import asked_time
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

ASKED = """
What did I say yesterday?
    ¿Qué dije ayer?
    Was habe ich gestern gesagt?
    Qu'est-ce que j'ai dit hier ?
    O que eu disse ontem?
    我昨天说了什么？
What did I buy last month?
    ¿Qué compré el mes pasado?
    Was habe ich letzten Monat gekauft?
    Qu'est-ce que j'ai acheté le mois dernier ?
    O que comprei no mês passado?
    我上个月买了什么？
Where did I go last week?
    ¿Adónde fui la semana pasada?
    Wo war ich letzte Woche?
    Où suis-je allé la semaine dernière ?
    Aonde eu fui na semana passada?
    我上周去了哪里？
Whom did I meet two weeks ago?
    ¿A quién vi hace dos semanas?
    Wen habe ich vor zwei Wochen getroffen?
    Qui ai-je vu il y a deux semaines ?
    Quem eu vi há duas semanas?
    我两周前见了谁？
What did I plan in March 2024?
    ¿Qué planeé en marzo de 2024?
    Was habe ich im März 2024 geplant?
    Qu'ai-je prévu en mars 2024 ?
    O que planejei em março de 2024?
    我2024年3月计划了什么？
What happened on 3 March 2025?
    ¿Qué pasó el 3 de marzo de 2025?
    Was war am 3. März 2025?
    Que s'est-il passé le 3 mars 2025 ?
    O que aconteceu em 3 de março de 2025?
    2025年3月3日发生了什么？
What did I do before March 2025?
    ¿Qué hice antes de marzo de 2025?
    Was habe ich vor März 2025 gemacht?
    Qu'ai-je fait avant mars 2025 ?
    O que fiz antes de março de 2025?
What did I do between May 2024 and July 2024?
    ¿Qué hice entre mayo de 2024 y julio de 2024?
    Was habe ich zwischen Mai 2024 und Juli 2024 gemacht?
    Qu'ai-je fait entre mai 2024 et juillet 2024 ?
    O que fiz entre maio de 2024 e julho de 2024?
What did I say last year?
    ¿Qué dije el año pasado?
    Was habe ich letztes Jahr gesagt?
    Qu'est-ce que j'ai dit l'année dernière ?
    O que eu disse no ano passado?
    我去年说了什么？
What did I eat last Friday?
    ¿Qué comí el viernes pasado?
    Was habe ich letzten Freitag gegessen?
    Qu'est-ce que j'ai mangé vendredi dernier ?
    O que comi na sexta-feira passada?
    我上周五吃了什么？
What will I do next week?
    ¿Qué haré la próxima semana?
    Was mache ich nächste Woche?
    Que vais-je faire la semaine prochaine ?
    O que vou fazer na próxima semana?
    我下周要做什么？
What happened in the last 3 days?
    ¿Qué pasó en los últimos 3 días?
    Was war in den letzten drei Tagen?
    Que s'est-il passé ces trois derniers jours ?
    O que aconteceu nos últimos 3 dias?
    过去三天发生了什么？
"""
"""A question in English, and under it the same in other languages."""


def _asked() -> Iterator[tuple[str, str]]:
    english = ""
    for line in ASKED.strip().splitlines():
        if line.startswith(" "):
            yield line.strip(), english
        else:
            english = line


@each_of(("said", "english"), list(_asked()))
def test_the_same_time(said: str, english: str) -> None:
    assert asked_time(english, NOW) is not None
    assert asked_time(said, NOW) == asked_time(english, NOW)


@each_of("said", ["¿Dónde vivo?", "Wo wohne ich?", "Où est-ce que j'habite ?", "Onde eu moro?", "我住在哪里？"])
def test_no_time(said: str) -> None:
    assert asked_time(said, NOW) is None
