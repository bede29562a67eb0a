"""Text → terms, the same at writing and at asking.

A term is a word without its ending, known by 64 bits; of scripts without spaces it is two characters that follow each other.

The language of a text decides which endings go. Of a short question it is easily misjudged, so a question asks for each of its
words under every language that the user's texts were judged to be in (`asked`): what was taken for Italian when it was written
is found under Italian, whatever it is. A text keeps each word once, so that this costs no room. Of the words of 590 Spanish,
German, French and Portuguese sentences, asked for one by one, .986 to 1 find their sentence so; by the language that the
question seems to be in .51 to .74, and all where it is told. Of English, where one text in 750 is taken for another
language, evidence is found as without any judging.

Words that say nothing in a text's language are not kept: they are a third of its words, and with them an item would have 46 %
(documentation) to 64 % (talk) more terms. So a question of nothing but such words is one for vectors. Without any it finds
nothing, as in PostgreSQL's own search; but what says nothing in its language may say something in another of the user's
("war", "die", "son"), and then is asked for in that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import Stemmer

from app.languages import judged
from app.text_cache import of_texts

VERSION = 1
"""Raised with every change of what a text's terms are: what another version has packed is analysed again."""

READ_CHARS = 65_536
"""Of a text so many characters are read (16,000 tokens of English): what is longer says by then what it is about."""
WORD_CHARS = 64
"""A longer word is cut into pieces of so many characters: it is a key, or encoded bytes."""
MOST_COUNTED = 255
"""How often a term counts in one text at most: one byte, and BM25 is saturated long before."""
HEAD_BYTES, HASH_BYTES = 2, 8
"""Of a million terms two share their hash once in 37 million users."""
KEPT_WORDS = 32_768
"""Words of one language whose terms are kept ready, some 200 bytes each: without them stemming and hashing take 2 µs a word."""
DEFAULT = "en"
"""The language of a text that shows none: names, numbers and code, and short English."""

STEMMERS = {
    "ca": "catalan", "da": "danish", "de": "german", "en": "english", "es": "spanish", "fi": "finnish", "fr": "french",
    "hu": "hungarian", "id": "indonesian", "it": "italian", "nl": "dutch", "no": "norwegian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "sv": "swedish", "tr": "turkish",
}  # fmt: skip
"""By language, of those in Latin letters."""
LANGUAGES = tuple(STEMMERS)
"""In packed terms a language is its number here."""
SCRIPTS = (
    (0x0370, 0x03FF, "greek"), (0x0400, 0x052F, "russian"), (0x0531, 0x058F, "armenian"), (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"), (0x0B80, 0x0BFF, "tamil"),
)  # fmt: skip
"""First and last character, and the stemmer of the language that most people write in it. Ukrainian with Russian endings off is
off alike at writing and asking, which is all that is needed."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai and Lao, Burmese, Khmer, Japanese, Chinese; and Korean: it has spaces, but particles stand on its nouns without one
(학교에서, 학교를), no stemmer is at hand, and most of its nouns are of two syllables."""
MARKED = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0971-\u0df3"
    "\u0f71-\u0fbc"
)
"""Marks that Python takes for no part of a word, though accents, Hebrew and Arabic points, and Indic vowels are; in the Indic
blocks with the letters between them. Written out, for Unicode grows with Python, and servers of two Pythons must agree."""


@cache
def stop_words(language: str) -> frozenset[str]:
    """The words that say nothing in a language; none where no list of them is at hand."""
    for line in Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").splitlines():
        code, _, words = line.partition(": ")
        if code == language:
            return frozenset(words.split())
    return frozenset()


_ASCII_WORD = re.compile(rf"[a-z0-9]{{1,{WORD_CHARS}}}")
_LATIN_WORD = re.compile(rf"[^\W_]{{1,{WORD_CHARS}}}")
_BEYOND_LATIN = re.compile("[\u0250-\U0010ffff]")
_CUT = re.compile("[" + "".join(sorted(stop_words("zh"))) + "]")
_WORD = re.compile(rf"([{UNSPACED}]+)|((?:[^\W_{UNSPACED}]|[{MARKED}]){{1,{WORD_CHARS}}})")
_PAIR = re.compile(f"[{UNSPACED}]{{2}}")
_IGNORED = re.compile("[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f]")
"""Soft hyphen, joiners, variation selectors: within words, and not always written."""
_ACCENT = re.compile("[\u0300-\u036f]")
_LAST_LATIN = 0x024F


class Term(NamedTuple):
    """A word of a question. `word`: its stem in the question's language; `hashes`: its terms, the first of them in that.
    `pair`: two characters, of which many are the end of one word and the beginning of the next."""

    word: str
    hashes: tuple[int, ...]
    pair: bool = False


def pack(text: str) -> bytes:
    """The terms of a text: version and language (`LANGUAGES`), 1 byte each, then n hashes of 8 bytes, the lowest first, and n
    counts of 1 byte. Every text has them, if none."""
    words = _words(text)
    language = _language(text, words) or DEFAULT
    table = _table(language)
    counts = Counter([table[word] for word in words])
    counts.pop(b"", None)
    return (
        bytes((VERSION, LANGUAGES.index(language)))
        + b"".join(counts)
        + bytes([min(each, MOST_COUNTED) for each in counts.values()])
    )


def asked(text: str, languages: Sequence[str] = ()) -> list[Term]:
    """The terms of a question, each once, to a user whose texts are in these languages, the commonest first."""
    words = _words(text)
    language = _language(text, words) or (languages[0] if languages else DEFAULT)
    tables = [_table(each) for each in dict.fromkeys((language, *languages, DEFAULT))]
    found: dict[bytes, tuple[str, dict[bytes, None]]] = {}
    for own in tables:
        for word in dict.fromkeys(words):
            if term := own[word]:
                hashes = found.setdefault(term, (own.stem(word), {}))[1]
                hashes.update((each[word], None) for each in tables)
        if found:
            break
    return [
        Term(word, tuple(int.from_bytes(each, "little") for each in hashes if each), _PAIR.fullmatch(word) is not None)
        for word, hashes in found.values()
    ]


def _words(text: str) -> list[str]:
    """Its words and pairs of characters, in their order."""
    read = text[:READ_CHARS]
    if read.isascii():
        return _ASCII_WORD.findall(read.lower())
    read = normalize("NFKC", _IGNORED.sub("", normalize("NFKC", read)[:READ_CHARS].casefold()))[:READ_CHARS]
    if _BEYOND_LATIN.search(read) is None:
        return _LATIN_WORD.findall(read)  # three times as fast
    read = _CUT.sub(" ", read)
    words: list[str] = []
    for unspaced, word in _WORD.findall(read):
        if word:
            words.append(word)
        elif len(unspaced) == 1:
            words.append(unspaced)
        else:
            words += [unspaced[at : at + 2] for at in range(len(unspaced) - 1)]
    return words


def _language(text: str, words: Sequence[str]) -> str:
    """Nothing where nothing tells, or nobody has rules for its endings."""
    language = judged(words, "" if text.isascii() else text)
    return language if language in STEMMERS else ""


class _Table(dict[str, bytes]):
    """From words to terms in one language: 8 bytes, or none for a word that says nothing. Filled as words come up."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._stop = stop_words(language) | stop_words("ru")  # whose letters tell it apart from the other
        self._stemmer = _stemmer_of(STEMMERS[language])

    def __missing__(self, word: str) -> bytes:
        if len(self) >= KEPT_WORDS:
            self.clear()
        self[word] = term = b"" if word in self._stop else _hash(self.stem(word))
        return term

    def stem(self, word: str) -> str:
        """Without its ending, by this language or the word's own script."""
        first = ord(word[0])
        stemmer = self._stemmer if first <= _LAST_LATIN else _of_script(first)
        return word if stemmer is None else stemmer.stemWord(word)


@of_texts(len(STEMMERS))
def _table(language: str) -> _Table:
    return _Table(language)


def _hash(stem: str) -> bytes:
    """Accents are left out once the stemmer has seen them: many people do not type them. BLAKE2b is the same in every process
    and version, is in Python itself, and takes .7 µs. b"" for marks without a letter."""
    if not stem.isascii():
        stem = _ACCENT.sub("", normalize("NFD", stem))
    return blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest() if stem else b""


def _of_script(character: int) -> Stemmer.Stemmer | None:
    for first, last, name in SCRIPTS:
        if first <= character <= last:
            return _stemmer_of(name)
    return None


@cache
def _stemmer_of(name: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(name, 0)
