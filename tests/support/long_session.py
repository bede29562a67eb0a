"""A conversation of 400 turns about nothing much, with forty facts in it, and a question about each."""

from __future__ import annotations

import random
from typing import NamedTuple


class Fact(NamedTuple):
    """What the user says in some turn, what is asked about it later, and the word that an answer needs."""

    turn: int
    said: str
    question: str
    answer: str


_FACTS = (
    ("My sister Clara works as a nurse in Porto.", "Where does my sister Clara work?", "Porto"),
    ("I'm allergic to hazelnuts, by the way.", "Which nuts am I allergic to?", "hazelnuts"),
    ("We named our new puppy Bramble.", "What is the name of our puppy?", "Bramble"),
    ("The insurance number of the van is KX-4471.", "What is the insurance number of the van?", "KX-4471"),
    ("My dentist is Doctor Okafor on Mill Street.", "Who is my dentist?", "Okafor"),
    ("I learned to play the oboe when I was nine.", "Which instrument did I learn as a child?", "oboe"),
    ("The wedding of Tomas takes place on 14 June.", "When is the wedding of Tomas?", "14 June"),
    ("Our landlord raised the rent to 1340 euros.", "How much rent does our landlord want?", "1340"),
    ("I finished my thesis about glaciers in 2011.", "What was my thesis about?", "glaciers"),
    ("My favourite restaurant is the Blue Heron.", "What is my favourite restaurant called?", "Blue Heron"),
    ("I drive a green Volvo from 1998.", "Which car do I drive?", "Volvo"),
    ("My grandmother was born in Trieste.", "Where was my grandmother born?", "Trieste"),
    ("The password hint for the attic is the name of the parrot, Zorro.", "What is the parrot called?", "Zorro"),
    ("I booked flight TP 1364 for the holidays.", "Which flight did I book for the holidays?", "1364"),
    ("My project at work is called Lighthouse.", "What is my project at work called?", "Lighthouse"),
    ("I prefer oat milk in my coffee.", "Which milk do I want in my coffee?", "oat"),
    ("My son Emil is afraid of spiders.", "What is my son Emil afraid of?", "spiders"),
    ("The meeting with the architect Ferrante is on Thursday.", "Which architect do I meet?", "Ferrante"),
    ("I wear shoes of size 43.", "What is my shoe size?", "43"),
    ("My old school was Saint Bridget's in Cork.", "Which school did I go to?", "Bridget"),
    ("We keep the spare key under the terracotta frog.", "Where is the spare key?", "frog"),
    ("My neighbour Ludwig repairs violins.", "What does my neighbour Ludwig repair?", "violins"),
    ("I gave up smoking in March.", "When did I give up smoking?", "March"),
    ("The boiler was made by Hartmann.", "Who made the boiler?", "Hartmann"),
    ("My running club meets at the Tannery gate.", "Where does my running club meet?", "Tannery"),
    ("I collect stamps from Iceland.", "Stamps from which country do I collect?", "Iceland"),
    ("My boss Ingrid moves to Bergen.", "Where does my boss Ingrid move to?", "Bergen"),
    ("The wifi at the cabin is called Otterden.", "What is the wifi at the cabin called?", "Otterden"),
    ("I sold the piano for 900 euros.", "For how much did I sell the piano?", "900"),
    ("My blood group is B negative.", "What is my blood group?", "negative"),
    ("The caterer for the party is Saffron Lane.", "Who is the caterer for the party?", "Saffron"),
    ("I'm reading a novel by Machado.", "Whose novel am I reading?", "Machado"),
    ("My daughter Ida starts at the Montessori kindergarten.", "Which kindergarten does my daughter start at?", "Montessori"),
    ("The garden shed needs 18 roof tiles.", "How many roof tiles does the garden shed need?", "18"),
    ("I met my wife at a chess tournament.", "Where did I meet my wife?", "chess"),
    ("My accountant Pereira retires this year.", "Which accountant retires?", "Pereira"),
    ("We painted the nursery in the colour apricot.", "In which colour did we paint the nursery?", "apricot"),
    ("My physiotherapist says my left knee is the problem.", "Which knee is the problem?", "left"),
    ("The bakery on the corner closes on Wednesdays.", "When does the bakery on the corner close?", "Wednesday"),
    ("I want to hike the Stelvio trail next summer.", "Which trail do I want to hike?", "Stelvio"),
)  # fmt: skip

TURNS = 400
FACTS = tuple(Fact(5 + 9 * n, *each) for n, each in enumerate(_FACTS))
"""Nine turns apart, from the 6th on: none of them in the first turn or in the last four."""

_ASKED = (
    "Tell me something about {a} and {b}.", "How do people usually handle {a} when {b} gets in the way?",
    "Give me three ideas for {a}, if possible without {b}.", "Is {a} older than {b}, and does anybody care?",
    "Compare {a} with {b} in a few plain sentences.",
)  # fmt: skip
_ANSWERED = (
    "There is more to {a} than most people think, and {b} is a good place to begin with it.",
    "With {a} it mostly comes down to patience; {b} only helps those who have some already.",
    "People have argued about {a} for a long time, and about {b} for even longer, without much of a result.",
    "A short answer would be that {a} and {b} have little in common except for the weather that they need.",
)  # fmt: skip
_THINGS = (
    "lanterns", "tidal pools", "wool", "bridges", "kites", "orchards", "gravel", "clocks", "ferns", "pottery", "sundials",
    "windmills", "barges", "thatch", "lichen", "bells", "hedges", "compost", "maps", "cobblestones", "rivers", "moss",
    "canals", "beehives", "quarries", "chimneys", "shutters", "terraces", "ladders", "wells",
)  # fmt: skip


def exchanges(seed: int = 4) -> list[tuple[str, str]]:
    """400 questions and answers, some 40 tokens each; always the same ones."""
    chance = random.Random(seed)
    facts = {each.turn: each for each in FACTS}
    found = []
    for turn in range(TURNS):
        a, b = chance.sample(_THINGS, 2)
        asked = chance.choice(_ASKED).format(a=a, b=b)
        answered = " ".join(each.format(a=a, b=b) for each in chance.sample(_ANSWERED, 2))
        if turn in facts:
            asked = facts[turn].said if chance.random() < 0.5 else f"{facts[turn].said} {asked}"
        found.append((asked, answered))
    return found
