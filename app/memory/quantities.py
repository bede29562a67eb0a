"""Vague measures and the bounds that make them exact: "short blog posts", "blog posts under 800 words" (seed 001 §4.3).

Pure functions over texts of all languages that have rules but Chinese, whose texts have no spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_TEXT_TEXT = """
word words page pages character characters sentence sentences line lines paragraph paragraphs
wort wörter wörtern zeichen seite seiten satz sätze sätzen zeile zeilen absatz absätze absätzen
palabra palabras página páginas carácter caracteres frase frases línea líneas párrafo párrafos
mot mots page pages caractère caractères phrase phrases ligne lignes paragraphe paragraphes
palavra palavras caractere caracteres linha linhas parágrafo parágrafos
"""
_DURATION_TEXT = """
second seconds sec minute minutes min hour hours day days
sekunde sekunden minuten stunde stunden tag tage tagen
segundo segundos minuto minutos hora horas día días
seconde secondes heure heures jour jours dia dias
"""
_LENGTH_TEXT = (
    "mm cm m km metre metres meter meters metern kilometre kilometres kilometer kilometers kilometern mile miles"
)
_LENGTH_TEXT += (
    " inch inches foot feet metro metros kilómetro kilómetros mètre mètres kilomètre kilomètres quilómetros quilômetros"
)
_AREA_TEXT = "m2 m² sqm hectare hectares acre acres quadratmeter quadratmetern"
_WEIGHT_TEXT = (
    "g kg gram grams gramm kilo kilos kilogram kilograms pounds lb lbs gramo gramos gramme grammes gramas tons"
)
_CURRENCY_TEXT = (
    "€ $ £ ¥ euro euros eur dollar dollars usd pound pounds gbp pence cent cents dólares libras pesos reais"
)
_CLOCK_TEXT = "am pm a.m p.m o'clock uhr h heures horas"
_TEXT, _DURATION, _CURRENCY, _CLOCK = (
    frozenset(text.split()) for text in (_TEXT_TEXT, _DURATION_TEXT, _CURRENCY_TEXT, _CLOCK_TEXT)
)
_LENGTH, _WEIGHT = frozenset(_LENGTH_TEXT.split()), frozenset(_WEIGHT_TEXT.split())
_SIZE = _LENGTH | _WEIGHT | frozenset(_AREA_TEXT.split())
_EXTENT = _TEXT | _DURATION | _LENGTH

_SMALL_TEXT = {
    _EXTENT: """short brief kurz kurze kurzen kurzer corto corta cortos cortas breve breves court courte courts courtes
bref brève brefs brèves curto curta curtos curtas""",
    _TEXT: "concise knapp knappe knappen",
    _DURATION: "quick",
    _SIZE: """small little tiny klein kleine kleinen pequeño pequeña pequeños pequeñas petit petite petits petites
pequeno pequena pequenos pequenas""",
    _WEIGHT: "light",
    _CURRENCY: "cheap billig billige billigen günstige günstigen barato barata baratos baratas",
    _CLOCK: "early früh frühe frühen temprano temprana tempranas cedo",
}
_LARGE_TEXT = {
    _EXTENT: "long lang lange langen langer longue longs longues longo longa longos longas largo larga largos largas",
    _SIZE: "large big groß große großen grande grandes",
    _WEIGHT: "heavy",
    _CURRENCY: "expensive teure teuren caro cara caros caras",
    _CLOCK: "late spät späte späten tarde tardía tardías",
}
SMALL = {word: units for units, text in _SMALL_TEXT.items() for word in text.split()}
"""Words for a small measure, which an upper bound in one of these units makes exact."""
LARGE = {word: units for units, text in _LARGE_TEXT.items() for word in text.split()}
"""Words for a large measure, which a lower bound in one of these units makes exact."""

_AT_MOST = re.compile(
    r"\b(?:under|below|within|before|up to|at (?:the )?most|max(?:imum)?|(?:less|fewer|shorter|smaller|cheaper|earlier) than"
    r"|unter|höchstens|weniger als|kürzer als|bis zu|vor"
    r"|menos de|como máximo|máximo|hasta|antes de|moins de|au plus|au maximum|avant|até|no máximo|antes das)\b",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(
    r"\b(?:over|above|after|beyond|at least|min(?:imum)?|(?:more|longer|larger|bigger|heavier|later) than"
    r"|über|mindestens|mehr als|länger als|nach"
    r"|más de|al menos|por lo menos|después de|plus de|au moins|après|mais de|pelo menos|depois das)\b",
    re.IGNORECASE,
)
_DENIED_MORE = re.compile(
    r"\b(?:no|not) (?:more|longer|larger|bigger|heavier|later) than\b"
    r"|\bnicht (?:mehr|länger) als\b|\bno más de\b|\bpas plus de\b|\bnão mais de\b",
    re.IGNORECASE,
)
_UNWANTED_MORE = re.compile(
    r"\b(?:does not|doesn't|do not|don't) (?P<verb>want|like)s? (?P<what>[^,.;]{1,60}?)"
    r" (?:more|longer|larger|bigger|later) than\b",
    re.IGNORECASE,
)


def rewrite_bounds(text: str) -> str:
    """Return `text` with a denied bound ("no longer than", "does not want … longer than") rewritten as "under"."""
    return _UNWANTED_MORE.sub(r"\g<verb>s \g<what> under", _DENIED_MORE.sub("under", text))


def makes_exact(vague: Collection[str], text: str) -> bool:
    """Tell whether `text` gives the measure that the words `vague` leave open: a number with a bound of the same direction, in
    a unit that the word can mean. "Under 800 words" makes "short" exact, contradicts "long", and says nothing of "cheap".

    Args:
        vague: Words that only the other text has; none but one word of measure is made exact.
        text: A text whose denied bounds are told plainly (`rewrite_bounds`).
    """
    if len(vague) != 1:
        return False
    (word,) = vague
    most, least = _AT_MOST.search(text), _AT_LEAST.search(text)
    bound = most or least
    units = (SMALL if most else LARGE).get(word)
    if bound is None or (most and least) or units is None:
        return False
    return _read_unit(text[bound.end() :]) in (units | {""} if units is _CLOCK else units)


_NUMBER = r"(?:\d[\d.,:]*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_NUMBER += r"(?: (?:hundred|thousand)(?: and \d+)?)?"
_AMOUNT = re.compile(
    rf"\s*(?:(?:las|a|à|às|as) )?(?:(?P<sign>[€$£¥])\s*{_NUMBER}"
    rf"|{_NUMBER}(?![\d.,:])\s*(?:(?:square|sq) )?(?P<unit>[€$£¥]|[^\W\d_][\w.'²]*)?)(?P<rest>.*)",
    re.IGNORECASE,
)
_RATE = re.compile(r"[\s.]*(?:$|(?:a|an|per|each|pro|por|par|la)\s+\S+$)", re.IGNORECASE)


def _read_unit(bounded: str) -> str | None:
    """Return the unit of the amount that is all that follows a bound but for a rate ("a night"), "" without a unit, or None."""
    amount = _AMOUNT.fullmatch(bounded)
    if amount is None or not _RATE.fullmatch(amount["rest"]):
        return None
    return amount["sign"] or (amount["unit"] or "").casefold().rstrip(".")
