"""The user's own statements in a message: what is quoted, pasted, supposed or asked is masked or marked first.

Masked characters become line ends, one for one, so that every place in the masked text is the same place in the message.
All expressions are linear, and the message is bounded before.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from app.languages import all_of
from app.memory.brought_text import find_brought_text
from app.memory.text import injected_spans, strip_injected
from app.text_cache import of_texts

MAX_HEAD = 12_000
MAX_TAIL = 4_000
"""Characters of a message that are read, from its beginning and its end: in a longer one the middle is a document."""
_MAX_CLAUSES = 400
MASK = "\n"
MAX_OWN_WORD = 400
"""Characters of a message that may order something: four long sentences. A longer one rather carries something."""
_LINE_END = re.compile(r"[\n\r\u2028\u2029]")
_COLON = re.compile(r"[:：]")
AT_ONCE = 2
"""Messages of which it is kept how they read, for the next that asks."""


class Clause(Struct, frozen=True):
    """One clause: `text` is the message from `start` to `end`, straight apostrophes, with what only leads in cut off.

    `lead`: the words cut off in front, lower case ("no, actually"). `greeted`: the sentence opened with a greeting.
    `elliptic`: it lacks its subject and continues a first-person clause ("… and work as a nurse"). `sentence` counts them.
    `hedged`: the user doubts or wishes it rather than states it; it begins with the words that say so ("I think I …").
    """

    text: str
    start: int
    end: int
    lead: str = ""
    greeted: bool = False
    elliptic: bool = False
    sentence: int = 0
    hedged: bool = False


def own_word(message: str) -> bool:
    """Whether a message is the user's own short word, of which commands and standing instructions are taken: one line. What has
    several may be a template that carries what others wrote, whatever stands around it."""
    said = strip_injected(message).strip()
    return len(said) <= MAX_OWN_WORD and _LINE_END.search(said) is None


def announced(message: str, start: int) -> int:
    """How often the user's own words up to this place announce what follows: "Question:", "The page says:"."""
    return len(_COLON.findall(masked(message), 0, start))


def clauses(message: str, *, hedged: bool = False) -> list[Clause]:
    """The clauses of the message that the user states as so, in order; with `hedged` those, too, that are only half stated."""
    read, gap = _read(message)
    found = [each for each in _clauses(_masked(read)) if hedged or not each.hedged]
    return [
        replace(each, start=each.start + gap, end=each.end + gap) if each.start > MAX_HEAD else each for each in found
    ]


def _read(message: str) -> tuple[str, int]:
    """What is read of a message, and how many characters are left out after its first `MAX_HEAD`."""
    if len(message) <= MAX_HEAD + len(MASK) + MAX_TAIL:
        return message, 0
    read = message[:MAX_HEAD] + MASK + message[-MAX_TAIL:]
    return read, len(message) - len(read)


def _clauses(text: str) -> list[Clause]:
    found: list[Clause] = []
    for number, (start, end) in enumerate(_sentences(text)):
        sentence = text[start:end]
        if _RETRACTED.search(sentence):
            found.clear()
            continue
        if _FICTION.search(sentence):
            break
        if not _JOKE.search(sentence):
            found += _stated(text, start, end, number)
        if len(found) >= _MAX_CLAUSES:
            break
    return found[:_MAX_CLAUSES]


# --- masking -------------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"(?:```|~~~)")
_BLOCKS = re.compile(
    r"`[^`\n]*`"  # inline code
    r"|^[ \t]*>[^\n]*$"  # quoted lines
    r"|^[ \t]*\|[^\n]*\|[ \t]*$"  # tables
    r"|^[ \t]*[\[{\"][^\n]*[\]},:\"][ \t]*$"  # JSON
    r"|^(?: {4}|\t)[^\n]*$"  # indented code
    r"|^[ \t]*(?:import |from \S+ import|def |class |return |const |let |var |function |#include|public |SELECT |"
    r"INSERT )[^\n]*$"
    r"|https?://\S+",
    re.MULTILINE,
)
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->))*(?:-->|$)")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,2000}\"|“[^“”]{1,2000}”|„[^„“”]{1,2000}[“”]|«[^«»]{1,2000}»|「[^「」]{1,2000}」|『[^『』]{1,2000}』|(?<![\w'])'[^'\n]{12,400}'(?!\w)"
)
_OWN_WORDS = re.compile(r"\b(?:I|I'm|my|me|we|our|always|never|remember|call|name)\b", re.IGNORECASE)
_HAN = re.compile(r"[\u3400-\u9fff]")
_LONG_QUOTE = 60  # characters: a title is shorter, a quotation is not
_TAGGED = re.compile(r"<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,200})?>")
_MAX_TAGS = 50
_FOREIGN_TAGS = frozenset(
    """doc docs document documents context source file files article email mail letter quote quotation citation example
    examples transcript text code pre blockquote script style html body div span p system instructions instruction
    data content page result results review poem story draft essay cv resume profile bio persona post tweet comment
    note notes memo passage paragraph snippet excerpt attachment tool output log conversation history chat dialogue
    dialog summary assistant""".split()  # noqa: SIM905
)
"""Names of tags around what somebody else wrote."""
_SPEAKER = re.compile(r"^[ \t]*(?:\[[^\]\n]{1,30}\][ \t]*)?[^\W\d_a-zß-öø-ÿ][\w .'-]{0,24}(?::[ \t]|：)", re.MULTILINE)
_STAMPED_SPEAKER = re.compile(
    r"^[ \t]*\[?\d{1,4}[./:-]\d{1,2}[^\n\]:]{0,12}[^\n\]]{0,16}?\]?[ \t]*[-–—]?[ \t]*[^\W\d_][\w .'-]{0,30}:[ \t]",
    re.MULTILINE,
)
"""A line of a chat with its time and speaker: "[21/03/2024, 18:02] Ann: …"."""
_CLOCK = r"\d{1,2}[:.]\d{2}(?::\d{2})?(?: ?[aApP]\.?[mM]\.?)?"
_CHAT_HEAD = re.compile(
    r"^[ \t]*[^\W\d_a-zß-öø-ÿ][\w .'-]{0,30}?(?:,? ?\[|,[ \t]|[ \t]+[—–-][ \t]|[ \t]{1,8}\(?)"
    r"(?i:(?:today|yesterday|heute|gestern|aujourd'hui|hier|hoy|ayer|oggi|ieri|vandaag|gisteren)"
    r"(?: at| um| à| a las| alle)?,? ?)?"
    rf"(?:\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{1,4}},? )?{_CLOCK}[\])]?[ \t]*\n(?=[ \t]*\S)",
    re.MULTILINE,
)
"""A line with nothing but a speaker and a time, above what they say, as chats are pasted."""
_DOCUMENT = re.compile(
    r"^[ \t]*(?:"
    r"[=*#~+-]{3,}[ \t]*[\w./\\][^\n]{0,60}?[ \t]*[=*#~+-]{3,}[ \t]*$"
    r"|(?:begin|start)(?: of)?(?: the)? (?:document|file|text|context|article|transcript|e-?mail|message|excerpt|passage)\b"
    r"|(?:context|background)(?: information)?(?: is)?(?: given| provided)? below\b"
    r"|(?:document|source|passage|snippet|excerpt|chunk|dokument|quelle|documento|fuente|fonte|文档|文件|資料|문서|документ)"
    r"[ \t]*\d{1,3}[ \t]*(?:[:：.)]|$)"
    r"|\[\d{1,3}\][ \t]"
    r"|(?:context|kontext|contexte|contexto|contesto|上下文|文脈|контекст)[ \t]*[:：][ \t]*$"
    r")",
    re.IGNORECASE | re.MULTILINE,
)
"""The first line of a document that an application's retrieval put into a prompt."""
_CONTEXT = re.compile(
    r"^[ \t]*(?:context|kontext|contexte|contexto|contesto|上下文|文脈|контекст)[ \t]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_ASKED_OF_CONTEXT = re.compile(
    r"^[ \t]*(?:question|query|q|frage|pregunta|domanda|vraag|pergunta|问题|質問|질문|вопрос)[ \t]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
"""A line with the question about a context; the context is then not in the user's words."""
_DECORATION = re.compile(
    r"\A(?:\s*(?:@\w{1,30}[:,]?(?=\s)|(?:lol|lmao|rofl|xd|ha(?:ha)+h?|he(?:he)+|mdr|ptdr|ja(?:ja)+|kkk+|rsrs|哈哈+)[,.! ]"
    r"|[\u2600-\u27bf\U0001f000-\U0001faff\ufe0f\u200d]+))+",
    re.IGNORECASE,
)
"""A name that the message addresses, a laugh or emoji, in front of what it says."""
_STAMP = re.compile(
    rf"^[ \t]*[\[(]?(?:\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{1,4}}[,T]? ?)?{_CLOCK}[\])]?[ \t]*[-–—:]?[ \t]+(?=\S)",
    re.MULTILINE,
)
"""The time in front of a line, as chats show it."""
_OTHER_TASKS = re.compile(
    r"^[^\n:：]{0,60}(?:\btraduci|\btradurre|\briassum|\bcorregg|\briscriv|\bvertaal|\bsamenvat|\bherschrijf|\bcorrigeer|\bprzetłumacz|"
    r"\bstreść|\bpopraw|\bперевед|\bисправь|\bперепиши|\bрезюмируй|訳して|翻訳|要約|添削|번역|요약|교정)[^\n:：]{0,60}(?:[:：]|\n)(?=\s*\S)",
    re.IGNORECASE,
)
"""The beginning of a message that brings a text to work on, in languages without rules."""
_ROLE = re.compile(
    r"^[ \t]*(?:#{1,6} \S|\[(?:inst|system|context|document|tool)\b|(?:user|assistant|system|human|ai|tool|developer|model|"
    r"usuario|asistente|sistema|benutzer|assistent|utilisateur|système|usuário|用户|助手|系统)"
    r"(?: (?:result|message|output|prompt))?[:：])",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of a transcript, a prompt or a document with headings: what follows was pasted."""
_LETTER = re.compile(
    r"^[ \t]*(?:dear |to whom it may|from: |to: |subject: |sent: |date: |-{3,} ?(?:forwarded|original)|"
    r"on .{5,60} wrote:|(?:e-?mail|message|letter|note) from (?!me\b|myself\b|today\b)[^\s:.,]+(?: [^\s:.,]+)?"
    r"(?::|[.,](?!\s*(?:i|i'm|i've|my|we|our)\b)))",
    re.IGNORECASE | re.MULTILINE,
)
_MATERIAL = (
    r"translat|summari[sz]|rewrite|rewrit|rephras|paraphras|proofread|proof-read|correct|edit|fix|improve|polish|"
    r"shorten|analy[sz]|classif|review|grade|complete|continue|extract|convert|format|parse|explain|simplif|critique|"
    r"respond to|reply to|answer this|check|turn|make this|read|consider|evaluate|rate|expand|transcrib|tag|label|"
    r"annotate|detect|categori[sz]|identify|draft|write|compose|generate|say|phrase|example|sentence|statement|text|"
    r"email|letter|passage|paragraph|review|prompt|quote|tweet|post|message|article|essay|story|lyrics|dialogue|script|"
    r"bio|input|output|following|below"
)
_TASK_COLON = re.compile(rf"\b(?:{_MATERIAL})\w*\b[^.!?:\n]{{0,120}}:", re.IGNORECASE)
_TASK_BELOW = re.compile(
    r"^(?:please )?(?:translat\w*|(?:summari[sz]e|rewrite|rephrase|paraphrase|proofread|correct|edit|fix|improve|polish|"
    r"shorten|review|simplify) (?:this|these|the|my|our)\b[^.!?\n]{0,60}\b(?:text|sentence|paragraph|e-?mail|letter|message|"
    r"essay|article|passage|post|tweet|story|poem|grammar))\b[^.!?\n]{0,60}\s[–—-]{1,2}\s"
    r"|\b(?:translat|summari[sz]|rewrit|rephras|paraphras|proofread|proof-read|correct|edit|fix|improve|polish|shorten|"
    r"analy[sz]|classif|review|simplif|critique|evaluat|categori[sz])\w*\b[^.!?\n]{0,80}\b(?:following|below|this|"
    r"these)\b[^.!?\n]{0,80}(?:[.!?]|\n)"
    r"|\b(?:fix|correct|check|improve|polish|proofread)\w* (?:the |its |any )?(?:grammar|spelling|typos?|punctuation|"
    r"wording)\b[^.!?\n,]{0,40}[.!?,\n](?!\s*(?:i|i'm|i've|my|we|our)\b)",
    re.IGNORECASE | re.MULTILINE,
)


def masked(message: str) -> str:
    """The message, as long as it was, with everything but the user's own statements turned into line ends."""
    read, gap = _read(message)
    text = _masked(read)
    return text[:MAX_HEAD] + MASK * gap + text[MAX_HEAD:]


def find_own_words(message: str) -> str:
    """Return what is left of a message without all that others said, in one line."""
    return " ".join(masked(message).split())


@cache
def _pasted() -> tuple[tuple[re.Pattern[str], bool, bool], ...]:
    """What opens a pasted text in any language, whether it is itself part of it, and whether it holds a colon."""
    return (
        (_ROLE, True, False),
        (_LETTER, True, False),
        (all_of("letter"), True, False),
        (_TASK_BELOW, False, False),
        (all_of("below"), False, False),
        (_TASK_COLON, False, True),
        (all_of("task"), False, True),
        (_OTHER_TASKS, False, False),
        (_DOCUMENT, True, False),
        (_STAMPED_SPEAKER, True, True),
        (_CHAT_HEAD, True, False),
    )


@of_texts(AT_ONCE)
def _masked(message: str) -> str:
    """Asked for by each that looks at a message: its language, its statements, its commands."""
    text = message.replace("’", "'").replace("ʼ", "'").replace("\r", MASK)
    spans = injected_spans(text)
    text = _mask(text, spans)
    text = _mask(text, _fenced(text))
    text = _mask(text, [m.span() for m in _COMMENT.finditer(text)])
    text = _mask(text, [m.span() for m in _BLOCKS.finditer(text)])
    text = _mask(text, _tagged(text))
    quotes = [m.span() for m in _QUOTED.finditer(text) if len(m[0]) > _LONG_QUOTE or _says(m[0])]
    text = _mask(text, [span for span in quotes if not _is_contraction_span(text, span)])
    speakers = list(_SPEAKER.finditer(text))
    if len(speakers) >= 2:
        text = _mask(text, [(speakers[0].start(), len(text))])
    colon = ":" in text or "：" in text
    if (context := _CONTEXT.search(text)) and _ASKED_OF_CONTEXT.search(text, context.end()):
        text = _mask(text, [(context.start(), len(text))])
    for pattern, itself, wants_colon in _pasted():
        if wants_colon and not colon:
            continue
        if opening := pattern.search(text):
            text = _mask(text, [(opening.start() if itself else opening.end(), len(text))])
    text = _mask(text, find_brought_text(text))
    decoration = [match.span() for match in _DECORATION.finditer(text)]
    return _mask(_mask(text, decoration), [match.span() for match in _STAMP.finditer(text)])


def _says(quote: str) -> bool:
    """Is it a statement rather than a name or a title? In other languages than English: more than two words."""
    return bool(_OWN_WORDS.search(quote)) or len(quote.split()) > 2 or len(_HAN.findall(quote)) > 4


def _mask(text: str, spans: list[tuple[int, int]]) -> str:
    if not spans:
        return text
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], MASK * (end - start)]
        done = end
    return "".join([*parts, text[done:]])


def _fenced(text: str) -> list[tuple[int, int]]:
    marks = [m.span() for m in _FENCE.finditer(text)]
    opens, closes = marks[::2], marks[1::2]
    ends = [end for _, end in closes] + [len(text)] * (len(opens) - len(closes))
    return [(start, end) for (start, _), end in zip(opens, ends, strict=True)]


def _tagged(text: str) -> list[tuple[int, int]]:
    """What stands between `<tag>` and `</tag>`: pasted documents, examples, mark-up."""
    spans: list[tuple[int, int]] = []
    at = 0
    for _ in range(_MAX_TAGS):
        opening = _TAGGED.search(text, at)
        if opening is None:
            break
        close = text.find(f"</{opening[1]}>", opening.end())
        at = opening.end() if close < 0 else close
        if close < 0:
            continue
        stop = close + len(opening[1]) + len("</>")
        whole = not text[: opening.start()].strip() and not text[stop:].strip()
        if whole and opening[1].lower() not in _FOREIGN_TAGS:  # a client wraps what the user says
            spans += [opening.span(), (close, stop)]
            break
        spans.append((opening.start(), close))
    return spans


def _is_contraction_span(text: str, span: tuple[int, int]) -> bool:
    """Two apostrophes of contractions are no quotation: `I'm sure it's`."""
    return text[span[0]] == "'" and span[0] > 0 and text[span[0] - 1].isalnum()


# --- sentences and clauses -----------------------------------------------------------------------------------------------

_STOP = re.compile(r"[.!?…]+(?=[\s)\"'”]|$)|\n+|;")
_ABBREVIATION = re.compile(
    r"\b(?:dr|mr|mrs|ms|st|prof|sr|jr|vs|etc|e\.g|i\.e|approx|inc|ltd|co|u\.s|u\.k|(?-i:[A-HJ-Z]))$", re.IGNORECASE
)
_BULLET = re.compile(r"[\s*•\-–—>#]*(?:\d{1,2}[.)]\s+)?[\s*•\-–—]*")

_RETRACTED = re.compile(
    r"\b(?:just kidding|jk|j/k|i'm joking|i am joking|i was joking|only joking|not really|just joking|i lied|"
    r"that was a joke"
    r"|ignore (?:that|what i)|scratch that|never ?mind)\b",
    re.IGNORECASE,
)
_JOKE = re.compile(r"\b(?:lol|lmao|rofl|haha\w*|hehe\w*|yeah right|as if)\b|(?<!\S)/s\b|[😂🤣😜😝🙃]", re.IGNORECASE)
_FICTION = re.compile(
    r"^\W*(?:imagine|pretend|suppose|assume|let's (?:say|pretend|imagine|assume|suppose|play)|say,|role-?play|act as|"
    r"act like"
    r"|you are (?!wrong|mistaken)|you're (?!wrong|mistaken)|what if|hypothetically|in (?:this|my|the|a) (?:story|novel|"
    r"scenario|dream|game|book|movie|film|play)"
    r"|for the sake of argument|picture this|once upon)|\b(?:role-?play(?:ing)?|pretend (?:that |to be |i|you|we)"
    r"|imagine (?:that |i|you|we|a)|my character|hypothetical|fictional|alter ego)\b",
    re.IGNORECASE,
)
_ARTWORK = re.compile(
    r"\b(?:write|draft|compose|generate|create|make up|tell|invent|give)\b[^.!?\n]{0,60}\b(?:poem|story|song|joke|"
    r"essay|dialogue|speech|tweet|haiku|limerick|rap|script|scene|monologue|sentence|example|caption|slogan|line|"
    r"character)s?\b",
    re.IGNORECASE,
)
_OTHERS_SAY = re.compile(
    r"\b(?!(?:i|we)\b)[a-z]+ (?:say|says|said|tell|tells|told|think|thinks|thought|claim|claims|claimed|believe|"
    r"believes|"
    r"insist|insists|insisted|joke|joked|jokes|wrote|writes|swear|swears|hopes|hope|wish|wishes|assume|assumes|guess|"
    r"suspects?|reckons?|keeps? saying)\b|\baccording to\b|\b(?:says|said|quote|asked whether|told) ?:",
    re.IGNORECASE,
)
_ADVISED = re.compile(
    r"(?:my|our) (?:doctor|gp|dentist|therapist|dietici?an|dietitian|physio) (?:told|advised|asked|wants|said)\b",
    re.IGNORECASE,
)
_TASTE = re.compile(r"can't (?:stand|bear|eat|drink)\b(?! (?:i|you|we|they)\b)", re.IGNORECASE)
_DOUBT = re.compile(
    r"^(?:i|we) (?:think|guess|suppose|wish|hope|doubt|believe|imagine|dreamed|dreamt|wonder|assume|bet|heard|read|"
    r"said|told|pretend|feel like|might|may|could|would|'d)\b|^(?:maybe|perhaps|possibly|probably|apparently|"
    r"supposedly|allegedly|"
    r"ideally|hopefully|theoretically|it seems|it's like|as if|as though|in theory|wishing|someday|one day)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|unless|whether|suppose|supposing|assuming|in case|would have|had i|were i)\b", re.IGNORECASE
)
_QUESTION_WORD = re.compile(
    r"^(?:what|where|when|which|who|whom|whose|how|why|can|could|would|will|should|shall|do|does|did|is|are|am|was|"
    r"were|has|"
    r"have (?:i|you|we|they)|may|might|any|isn't|aren't|don't|doesn't|didn't|won't|wouldn't|can't|couldn't|shouldn't|"
    r"ain't)\b",
    re.IGNORECASE,
)
_TAG_QUESTION = re.compile(
    r"(?:^|, )(?:right|correct|isn't it|don't i|am i not|aren't i|am i|do i|huh|yeah|no|ok|okay|true|or not|or what|"
    r"don't you think|isn't that so|are you sure|really)\s*\?*$",
    re.IGNORECASE,
)
_STARTER = (
    r"(?:(?:please|also|then|actually|now|so|and|but|just|currently|plus) )?(?:i|i'm|im|i've|i'd|i'll|i am|my|we|we're|"
    r"we've|our|call me|address me|remember|don't|do not|never|always|from now on|in (?:the )?future|going forward|"
    r"keep|use|answer|reply|respond|write|speak|what|where|when|which|who|how|why|can you|could you|would you|will you|"
    r"should|do you|does|is there|is it|is that|are there|any|suggest|recommend|give|tell|help|show|find|make|let's|"
    r"please|you|he|she|they|it|it's|this|that's|there|he's|she's|they're|you're|if|unless|remind|book|plan|explain|"
    r"not)(?=[\s,']|$)"
)
_ELLIPSIS = (
    r"(?:work|live|love|like|hate|prefer|enjoy|study|speak|own|drive|have (?:a|an|two|three|four|no)|am|was born|play|"
    r"don't (?:eat|drink|like)|do not (?:eat|drink|like)|can't stand|can't eat|use|teach|run a|never (?:eat|drink))\b"
)
_JOINT = re.compile(
    rf"(?:,|\s[-–—]{{1,2}}|:|\s?\()\s*(?:(?:and|but|so|because|since|although|though|however|while|yet|plus|"
    rf"as)\s+)?(?={_STARTER})"
    rf"|\s+(?:and|but|so|because|since|although|though|while|plus|or)\s+"
    rf"(?!i (?:broke|split|separated|got|have broken)\b)(?={_STARTER})"
    rf"|,?\s+(?P<ellipsis>and|but)\s+(?:also\s+)?(?={_ELLIPSIS})"
    r"|,?\s+(?:so|because|which means|therefore|hence)\s+",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:(?:(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening)|greetings)(?: (?:there|all|everyone|again|team|"
    r"guys))?"
    r"|oh|ok|okay|well|so|and|but|also|or|btw|by the way|fyi|given that|just so you know|just fyi|as you know|as i said"
    r"|as (?:i )?mentioned|actually|in fact|to be honest|tbh|honestly|personally|anyway|anyways|yes|yeah|yep|no|nope|"
    r"nah"
    r"|as(?= (?:i|i'm|we|we're|a|an)\b)|sure|thanks|thank you(?: so much)?|sorry|right|then|because|since|plus|"
    r"for context|for your information"
    r"|for the record|first|firstly|second|secondly|finally|unfortunately|luckily|fortunately|sadly|quick note"
    r"|a bit about me|about me|wait|hold on|correction|oops|great|cool|nice|perfect|good|please note that|note that"
    r"|you should know that|i should mention that|i forgot to say that|i want you to know that|it's worth noting that"
    r"|the thing is|look|listen|see|generally|in general|overall|these days|nowadays|at the moment|right now|as of now"
    r"|also note that|one more thing|additionally|furthermore|moreover|besides|too|importantly|that's wrong"
    r"|that's not right|you're wrong|not quite|my bad|alright|hmm+|um+|uh+|ah+|aha|haha|p\.?s\.?|i'm afraid|"
    r"i have to say"
    r"|i meant to say(?: that)?|i meant(?: that)?(?= (?:i|my)\b)|i mean|what i meant is(?: that)?|i must say|"
    r"i must admit|i admit|i have to admit|"
    r"speaking of which|long story short)(?:[,:.!\s–—-]+|$))+",
    re.IGNORECASE,
)
_GREETING = re.compile(r"^\W*(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening)|greetings)\b", re.IGNORECASE)
_STANDING_START = re.compile(
    r"^\W*(?:(?:and|also|please|so),? )*(?:(?:when(?:ever)?|if) (?:you (?:answer|reply|respond|write)|i (?:ask|say|"
    r"send|share|write|give|want)|answering|replying|writing|responding|coding|explaining|summari[sz]ing|translating)|"
    r"every time|each time"
    r"|for (?:all|any|every)|in (?:all|every|any|each) )[^,]{2,80},",
    re.IGNORECASE,
)
_FROM_NOW_ON = re.compile(
    r"^\W*(?:(?:and|also|please|so|ok|okay),? )*"
    r"(?:from (?:now|here|this point) on|going forward|in (?:the )?future|henceforth|at all times),",
    re.IGNORECASE,
)
"""The words that begin a standing order. No clause begins at the comma behind them: "From now on, give me prices in euros"."""
_MIN_CLAUSE = 4  # characters: "I a"


def _sentences(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, its closing marks included."""
    spans, start = [], 0
    for stop in _STOP.finditer(text):
        if stop[0] == "." and _ABBREVIATION.search(text, max(start, stop.start() - 8), stop.start()):
            continue
        end = stop.start() if stop[0].startswith("\n") else stop.end()
        if text[start:end].strip():
            spans.append((start, end))
        start = stop.end()
    if text[start:].strip():
        spans.append((start, len(text)))
    return spans


def _stated(text: str, start: int, end: int, number: int) -> list[Clause]:
    """The clauses of one sentence that are stated: not asked, not supposed, not said by somebody else."""
    start = _BULLET.match(text, start, end).end()  # type: ignore[union-attr]  # it matches the empty text
    sentence = text[start:end].rstrip(".!…; )")
    asked = sentence.endswith("?")
    sentence = sentence.rstrip("?.!… ")
    to_remember = _ASKED_TO_REMEMBER.search(sentence) is not None
    if asked and (_TAG_QUESTION.search(sentence) or _QUESTION_WORD.match(_LEAD.sub("", sentence, count=1))):
        if not to_remember:
            return []
        asked = False
    greeted = _GREETING.match(sentence) is not None
    found: list[Clause] = []
    pieces = _split(sentence)
    carried = ""
    doubted = None  # where "I think" stands, when a comma parts it from what is thought
    for index, (at, to, elliptic) in enumerate(pieces):
        piece = sentence[at:to]
        lead = _LEAD.match(piece)
        body = piece[lead.end() :] if lead else piece
        if (
            (_CONDITION.match(body.lstrip()) and not _STANDING_START.match(sentence))
            or (_OTHERS_SAY.search(body) and not _ADVISED.match(body))
            or _ARTWORK.search(body)
        ):
            break  # what follows in this sentence depends on it
        last = index == len(pieces) - 1
        asks = _QUESTION_WORD.match(body) and not (_IMPERATIVE_NOT.match(body) or (_TASTE.match(body) and not asked))
        asks = asks and not (index == 0 and (to_remember or _STANDING_START.match(sentence)))
        if (asked and last) or asks:
            doubted = None
            continue
        doubt = _DOUBT.match(body)
        if doubt is not None and not body[doubt.end() :].strip(" ,:"):
            doubted = at + (lead.end() if lead else 0)
            continue
        if doubted is not None:
            lead, body, at, doubted = None, sentence[doubted:to], doubted, None
        hedged = _DOUBT.match(body) is not None
        told = f"{carried} {lead[0] if lead else ''}".strip().lower()
        if len(body.strip()) < _MIN_CLAUSE:
            carried = told
            continue
        carried = ""
        offset = start + at + (lead.end() if lead else 0)
        trimmed = body.strip(" ,:()-–—")
        inside = body.find(trimmed)
        found.append(
            Clause(
                trimmed,
                offset + inside,
                offset + inside + len(trimmed),
                lead=told,
                greeted=greeted,
                elliptic=elliptic,
                sentence=number,
                hedged=hedged,
            )
        )
    return found


_ASKED_TO_REMEMBER = re.compile(
    r"^\W*(?:can|could|would|will) you (?:please )?(?:remember|note|keep in mind)\b", re.IGNORECASE
)
_IMPERATIVE_NOT = re.compile(r"^(?:don't|do not|do)\b(?! (?:i|you|we|they)\b)", re.IGNORECASE)


def _split(sentence: str) -> list[tuple[int, int, bool]]:
    """(start, end, elliptic) of each clause."""
    pieces, start, elliptic = [], 0, False
    standing = _STANDING_START.match(sentence) or _FROM_NOW_ON.match(sentence)
    for joint in _JOINT.finditer(sentence):
        if standing is not None:  # "whenever I ask for code, use …" is one order
            standing = None
            continue
        if not sentence[start : joint.start()].strip():
            continue
        pieces.append((start, joint.start(), elliptic))
        start, elliptic = joint.end(), joint["ellipsis"] is not None
    pieces.append((start, len(sentence), elliptic))
    return pieces
