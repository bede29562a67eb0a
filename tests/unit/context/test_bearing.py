"""Which facts a message calls for, in six languages. Sentences of our own."""

from __future__ import annotations

import time
from uuid import UUID

from app.context.bearing import MAX_CHARS, MessageTopics, answers, bears_on, languages, naming, read
from app.store.user_profile import StandingFact
from tests.support.tables import each_of


def fact(key: str, value: str) -> StandingFact:
    return StandingFact(UUID(int=1), UUID(int=2), key, ":" in key, value, UUID(int=3), None, None)


FACTS = {
    "home": fact("lives_in", "Berlin"),
    "work": fact("works_at", "Groenwerk"),
    "trade": fact("occupation", "landscape architect"),
    "name": fact("name", "Paula"),
    "wife": fact("wife.name", "Marta"),
    "nuts": fact("wife.allergic_to:peanuts", "peanuts"),
    "girl": fact("daughter.name", "Inês"),
    "herb": fact("dislikes:cilantro", "cilantro"),
    "drink": fact("likes:green tea", "green tea"),
    "thing": fact("gai-media.payment_terms", "NET30"),
    "city": fact("born_in", "东京"),
}


def called_for(message: str) -> set[str]:
    reading = naming(read(message), list(FACTS.values()))
    return {name for name, each in FACTS.items() if bears_on(each, reading, {})}


@each_of(
    ("message", "wanted"),
    [
        ("Where do I live?", {"home"}),
        ("hey, remind me: where do we live now?", {"home"}),
        ("Who do I work for?", {"work", "trade"}),
        ("What companies have I worked for?", {"work", "trade"}),
        ("What's my name?", {"name"}),
        ("What is my wife's name?", {"wife"}),
        ("What snack should I pack for a family trip?", {"wife", "nuts", "girl", "herb"}),
        ("A recipe for pho, please", {"nuts", "herb"}),
        ("Is Berlin warm in May?", {"home"}),
        ("Where can I buy good green tea?", {"drink"}),
        ("What are the terms of Gai Media?", {"thing"}),
        ("¿Dónde vivo?", {"home"}),
        ("¿Qué merienda preparo para mis hijos?", {"girl", "nuts", "herb"}),
        ("Wo wohne ich gerade?", {"home"}),
        ("Was kann meine Frau essen?", {"wife", "nuts", "herb"}),
        ("Où est-ce que j'habite ?", {"home"}),
        ("Une recette pour ma femme ?", {"wife", "nuts", "herb"}),
        ("Onde eu moro?", {"home"}),
        ("O que posso cozinhar para minha esposa?", {"wife", "nuts", "herb"}),
        ("我现在住在哪里？", {"home"}),
        ("我老婆晚饭能吃什么？", {"wife", "nuts", "herb"}),
        ("东京的天气怎么样？", {"city"}),
        *(
            (message, set(FACTS))
            for message in (
                "What do you know about me?",
                "Tell me everything you remember about me.",
                "¿Qué sabes de mí?",
                "Was weißt du über mich?",
                "Qu'est-ce que tu sais de moi ?",
                "O que você sabe sobre mim?",
                "你知道我什么？",
            )
        ),
        *(
            (message, set[str]())
            for message in (
                "What is 17 times 23?",
                "Say hi",
                "Write a haiku",
                "Continue",
                "Make it shorter",
                "What is the capital of Mongolia?",
                "How do I sort a list of names in Python?",
                "Schreib ein Gedicht über den Mond",
                "Traduis « bonsoir » en finnois",
                "写一首关于月亮的诗",
                "¿Cuánto es 17 por 23?",
                "",
            )
        ),
    ],
)
def test_what_a_message_calls_for(message: str, wanted: set[str]) -> None:
    assert called_for(message) == wanted


@each_of(
    ("message", "alone"),
    [
        ("Where do I live?", True),
        ("Hello! Please tell me, where do I live?", True),
        ("Where do I live, and what did we say of the neighbours?", False),
        ("Where did I live before?", False),
        ("Wo wohne ich?", True),
        ("Bonjour, où est-ce que j'habite ?", True),
        ("请问我住在哪里？", True),
    ],
)
def test_a_question_that_the_fact_answers_needs_nothing_else(message: str, alone: bool) -> None:
    assert answers(FACTS["home"], read(message)) is alone
    assert not answers(FACTS["herb"], read(message))


@each_of(
    ("message", "past"),
    [
        ("Where did I live before?", True),
        ("Which companies have I worked for?", True),
        ("Where did I use to work?", True),
        ("What was my old address?", True),
        ("¿Dónde vivía antes?", True),
        ("Wo habe ich früher gewohnt?", True),
        ("Où est-ce que j'habitais ?", True),
        ("Onde eu morava?", True),
        ("我以前住在哪里？", True),
        ("Where do I live?", False),
        ("Before I forget, what is 17 times 23?", False),
        ("What was my last message?", False),
        ("Say it as before", False),
    ],
)
def test_who_asks_for_what_was_gets_what_was(message: str, past: bool) -> None:
    assert read(message).past is past


AT_TABLE = {
    "nuts": fact("allergic_to:peanuts", "peanuts"),
    "diet": fact("diet", "vegetarian"),
    "asthma": fact("condition:asthma", "asthma"),
    "home": fact("lives_in", "Berlin"),
    "codes": fact("codes_in:Python", "Python"),
}
FOOD, HEALTH = {"nuts", "diet", "asthma"}, {"nuts", "asthma"}


@each_of(
    ("wanted", "messages"),
    [
        (
            FOOD,
            "Suggest a sandwich | Suggest a salad | Suggest a curry for tonight | What can I bring to a potluck?"
            " | Order me a burger | Suggest a cocktail | Any idea for a quick soup? | What wine goes with this?"
            " | I'm starving | A cake for Ana, please | Propose un gâteau | Une idée de tarte ?"
            " | Qu'est-ce que j'apporte au pique-nique ? | Commande-moi une pizza | Schlag mir einen Salat vor"
            " | Ein schneller Nudelsalat? | Was soll ich zum Grillen mitbringen? | Ich habe Hunger"
            " | Sugiere una ensalada | ¿Qué tapas preparo? | Pídeme una hamburguesa | Sugere uma salada"
            " | Uma ideia de sobremesa? | Que petiscos levo? | 推荐一个沙拉 | 推荐一款蛋糕 | 帮我点外卖",
        ),
        (
            HEALTH,
            "Is it safe for me to take aspirin? | Which painkiller is best? | I have a headache"
            " | Puis-je prendre de l'ibuprofène ? | Darf ich Penicillin nehmen? | Ich habe Kopfschmerzen"
            " | ¿Puedo tomar paracetamol? | Posso tomar um antibiótico? | 我可以吃阿司匹林吗？",
        ),
        (
            {"home"},
            "Do I need an umbrella? | Book me a flight to Rome | Wird es morgen regnen? | ¿Va a llover?"
            " | Quel temps fera-t-il ? | Vai chover? | 明天会下雨吗？",
        ),
        (
            set[str](),
            "How do I curry a function in Haskell? | Write a recipe model in Django"
            " | How do I center a div in a menu with CSS? | What caused the Boston Tea Party?"
            " | Who invented pizza? | When was penicillin discovered? | Who won at Waterloo?"
            " | The history of chocolate | Qui a inventé le croissant ? | Wer hat das Sandwich erfunden?"
            " | ¿Quién inventó la pizza? | Quem descobriu a penicilina? | 谁发明了面条？"
            " | Translate 'I eat an apple in Berlin' into French | Übersetze: Das Essen ist gut"
            " | Traduce «tengo hambre» al inglés | Traduis « le gâteau » en anglais | Traduz «bolo» para inglês"
            " | 把“我吃饭了”翻译成英语 | Say hi | What is 17 times 23? | Is a hash salted? | Draw a pie chart"
            " | Explain bubble sort",
        ),
    ],
)
def test_a_table_and_a_pharmacy_call_for_what_may_harm(wanted: set[str], messages: str) -> None:
    found = {
        message: {name for name, each in AT_TABLE.items() if bears_on(each, read(message), {})}
        for message in messages.split(" | ")
    }
    # "Can I take" something may be a meal as well as a medicine: what may harm has to be there.
    harm = {message: own & wanted if wanted == HEALTH else own for message, own in found.items()}
    assert harm == dict.fromkeys(found, wanted)


PEOPLE = {
    "own": fact("name", "Bob"),
    "home": fact("lives_in", "Berlin"),
    "sister": fact("sister.name", "Ana"),
    "porto": fact("sister.lives_in", "Porto"),
    "girl": fact("daughter.name", "Inês"),
    "march": fact("daughter.birthday", "3 March"),
    "dog": fact("dog.name", "Rex"),
    "will": fact("brother.name", "Will"),
    "rome": fact("brother.lives_in", "Rome"),
    "aunt": fact("aunt.name", "安娜"),
    "shanghai": fact("aunt.lives_in", "上海"),
}


@each_of(
    ("message", "wanted", "answered"),
    [
        ("Where does Ana live?", {"sister", "porto"}, True),
        ("And where is Ana's house?", {"sister", "porto"}, False),
        ("Who is Ana?", {"sister", "porto"}, False),
        ("¿Dónde vive Ana?", {"sister", "porto"}, True),
        ("Wo wohnt Ana gerade?", {"sister", "porto"}, True),
        ("Ist das Anas Auto?", {"sister", "porto"}, False),
        ("Où habite Ana ?", {"sister", "porto"}, True),
        ("Onde mora a Ana?", {"sister", "porto"}, True),
        ("安娜住在哪里？", {"aunt", "shanghai"}, True),
        ("Ana住在哪里？", {"sister", "porto"}, True),
        ("Where does my sister live?", {"porto"}, True),
        ("What's my dog's name?", {"dog"}, True),
        ("我女儿叫什么名字？", {"girl"}, True),
        ("How old is my daughter?", {"march"}, False),
        ("Wie alt ist Inês?", {"girl", "march"}, False),
        ("Where does Will live?", {"will", "rome"}, True),
        ("Will it rain?", {"home"}, False),
        ("Translate 'where does Ana live' into German", set[str](), False),
        ("Is a banana a fruit?", set[str](), False),
        ("Where do I live?", {"home"}, True),
    ],
)
def test_who_is_asked_for_by_name(message: str, wanted: set[str], answered: bool) -> None:
    reading = naming(read(message), list(PEOPLE.values()))
    assert {name for name, each in PEOPLE.items() if bears_on(each, reading, {})} == wanted
    assert any(answers(each, reading) for each in PEOPLE.values()) is answered


def test_what_retrieval_finds_likely_bears_as_well() -> None:
    assert bears_on(FACTS["drink"], read("Something hot, perhaps?"), {UUID(int=3): 0.8}) == "worth"
    assert bears_on(FACTS["drink"], read("Something hot, perhaps?"), {UUID(int=3): 0.2}) is None
    assert bears_on(FACTS["drink"], MessageTopics(), {}) is None


def test_a_long_message_is_looked_at_where_people_ask() -> None:
    text = "lorem ipsum dolor " * 4000
    assert called_for(f"{text}\nWhere do I live?") == {"home"}
    assert called_for(f"Where do I live?\n{text}") == {"home"}
    languages()
    began = time.process_time()
    read("my company where i " * 5000)
    assert time.process_time() - began < 1, f"no more than {MAX_CHARS} characters are looked at"
