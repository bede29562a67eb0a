"""The same facts about one person, said over and over in other words: templates of our own, filled and framed."""

from __future__ import annotations

import random
from collections.abc import Sequence

FACTS: Sequence[Sequence[str]] = (
    (
        "I live in Lisbon",
        "I'm living in Lisbon",
        "my home is in Lisbon",
        "I'm based in Lisbon",
        "I currently live in Lisbon",
    ),
    ("my name is Ana Duarte", "my full name is Ana Duarte", "my real name is Ana Duarte"),
    ("I'm vegetarian", "I am a vegetarian", "I've been vegetarian for years", "I eat vegetarian"),
    (
        "I'm allergic to peanuts",
        "I am severely allergic to peanuts",
        "I have an allergy to peanuts",
        "I have a peanut allergy",
    ),
    ("I'm allergic to penicillin", "I am really allergic to penicillin", "I have a bad allergy to penicillin"),
    ("I work as a nurse", "I'm a nurse", "my job is nurse", "I'm working as a nurse"),
    ("I like green tea", "I really like green tea", "I love green tea", "I enjoy green tea", "I'm fond of green tea"),
    ("I like hiking in the mountains", "I love hiking in the mountains", "I'm into hiking in the mountains"),
    ("I like old jazz records", "I'm a big fan of old jazz records", "I love old jazz records"),
    ("I hate horror films", "I can't stand horror films", "I really dislike horror films", "I don't like horror films"),
    ("I don't eat shellfish", "I never eat shellfish", "I can't eat shellfish", "we don't eat any shellfish"),
    ("I have two cats", "I've got two cats", "we have two cats", "I own two cats"),
    ("my wife's name is Marta", "my wife is called Marta", "my wife is named Marta"),
    ("my sister lives in Porto", "my sister is living in Porto", "our sister lives in Porto"),
    ("my brother is a firefighter", "my brother is also a firefighter", "our brother's a firefighter"),
    ("I speak Spanish", "I'm fluent in Spanish", "I also speak Spanish", "I'm a native Spanish speaker"),
    ("I play the cello", "I also play the cello", "I practise the cello"),
    ("I drive a Skoda Octavia", "I currently drive a Skoda Octavia", "I still drive a Skoda Octavia"),
    ("my birthday is on 4 May", "my birthday's 4 May", "my birthday is the 4 May"),
    ("I prefer answers under 200 words", "I really prefer answers under 200 words"),
    ("always cite your sources", "please always cite your sources", "from now on always cite your sources"),
    ("never use emojis", "please never use emojis", "don't ever use emojis", "from now on, never use emojis"),
    ("use metric units from now on", "from now on, use metric units", "in future, please use metric units"),
    ("my favourite colour is teal", "teal is my favourite colour", "my all-time favourite colour is teal"),
    ("I'm learning to weld", "I am currently learning to weld", "I'm learning how to weld", "I'm now learning to weld"),
)
"""For each fact several ways to say it."""

FRAMES = (
    "{}", "{}.", "By the way, {}.", "Hi! {}.", "Just so you know, {}", "FYI, {}.", "Oh, and {}.", "Well, {}!", "ok {}",
    "Please remember that {}.", "For your information: {}", "Thanks! {}.", "One more thing: {}.", "btw {}", "Hello there, {}",
)  # fmt: skip


def restatements(count: int, seed: int) -> list[str]:
    """So many utterances, each fact as often as any other; the same for the same seed, in a random order."""
    chance = random.Random(seed)
    said = []
    for n in range(count):
        fact = FACTS[n % len(FACTS)]
        said.append(chance.choice(FRAMES).format(chance.choice(fact)))
    chance.shuffle(said)
    return said
