"""Pairs of statements for the calibration of the duplicate threshold: written for it, no pair from anywhere else."""

from __future__ import annotations

import itertools

WORDINGS = """
Likes hiking in the mountains | Loves hiking in the mountains | Likes hiking up in the mountains
Likes Italian food | Loves Italian food | Enjoys Italian food | Likes Italian cooking
Hates horror films | Cannot stand horror films | Hates horror movies
Does not like coriander | Dislikes coriander | Hates coriander | Cannot stand coriander
Wakes up at six every morning | Wakes up at six each morning | Gets up at six every morning
Is learning to play the guitar | Is learning guitar | Is learning how to play the guitar
Has a dog named Rex | Has a dog called Rex | Dog's name is Rex
Favourite colour is teal | Favorite color is teal | Prefers the colour teal
Prefers tea over coffee | Likes tea more than coffee | Prefers tea to coffee
Wants short answers | Prefers short answers | Wants answers to be short | Prefers concise answers
Wants code without comments | Prefers code without comments | Does not want comments in code
Works from home on Fridays | Works at home on Fridays | Works from home every Friday
Runs a small bakery in town | Owns a small bakery in town | Has a small bakery in town
Is training for a marathon | Trains for a marathon | Is preparing for a marathon
Commutes to work by bicycle | Cycles to work | Rides a bicycle to work
Is afraid of flying | Has a fear of flying | Is scared of flying
Has a severe headache every spring | Gets severe headaches every spring
Takes the night train to the coast | Travels to the coast by night train
Plays the cello in an orchestra | Plays cello in an orchestra | Is a cellist in an orchestra
Volunteers at an animal shelter | Does volunteer work at an animal shelter | Helps at an animal shelter
Drinks coffee without sugar | Takes coffee without sugar | Drinks coffee with no sugar
Sells handmade soap online | Business sells handmade soap online | Sells hand-made soap on the internet
Grew up on a farm | Was raised on a farm | Spent childhood on a farm
Keeps bees on the roof | Has bees on the roof | Is a beekeeper on the roof
Studies marine biology | Is studying marine biology | Is a student of marine biology
Uses a screen reader | Works with a screen reader | Relies on a screen reader
Cannot eat shellfish | Does not eat shellfish | Never eats shellfish | Avoids shellfish
Collects old maps | Is a collector of old maps | Has a collection of old maps
Is writing a novel about sailors | Writes a novel about sailors | Is working on a novel about sailors
Needs large print because of poor eyesight | Has poor eyesight and needs large print
"""
"""One fact a line, in several words: every two of them are one memory."""

SWAPS = """
Likes {} food | spicy bland sweet sour street fast raw fried vegetarian traditional
Likes {} tea | green black white herbal mint iced
Hates {} films | horror action romantic silent old foreign
Works as a {} | nurse doctor teacher lawyer plumber baker pilot driver gardener midwife
Is learning to {} | weld sew swim code draw sail cook knit ski dance
Is learning to play the {} | guitar piano violin drums flute trumpet cello harp
Plays {} in a band | bass drums guitar keyboard trumpet
Drives a {} car | red blue small large electric rented old new
Has a {} at home | parrot hamster rabbit turtle snake goldfish
Is allergic to {} | peanuts shellfish penicillin pollen dust latex eggs milk soy wheat
Wants {} answers | short long formal funny detailed simple technical
Wants code in {} style | functional procedural compact verbose
Works from {} | home abroad cafes hotels trains
Commutes by {} | bicycle train bus tram ferry car
Is afraid of {} | flying spiders heights dogs needles water
Collects old {} | maps coins stamps records books clocks cameras
Studies {} biology | marine cell plant human
Runs a small {} in town | bakery bookshop café pharmacy garage brewery
Sells handmade {} online | soap candles jewellery pottery furniture
Keeps {} on the roof | bees pigeons plants chickens
Takes coffee with {} | milk sugar cream honey ice
Volunteers at an {} | hospice orphanage animal-shelter archive observatory
Reads {} before bed | novels poetry comics newspapers
Has a fear of {} | flying darkness crowds thunder
Uses a {} every day | wheelchair hearing-aid treadmill sewing-machine
Is writing a {} about sailors | novel play song thesis
Goes {} every weekend | swimming climbing dancing fishing shopping
Suffers from {} | migraines asthma diabetes insomnia arthritis
Has a {} brother | older younger twin
Prefers {} seats | aisle window front back
Sleeps on the {} side | left right
Keeps the heating {} | on off low high
Wife works at a {} | hospital school bank museum
Runs a small {} in the old town | bakery car-workshop bed-and-breakfast language-school hotel
Drives a {} to work | van sports-car delivery-truck motorbike
Likes {} in the evening | wine cold-beer a-cup-of-cocoa whisky
Is training for a {} | marathon bicycle-race swimming-competition triathlon
Works for a {} company | software car-insurance pharmaceutical food-delivery
Wants reports as {} | tables bullet-points plain-text charts
Grew up on a {} | farm house-boat military-base ship
Is allergic to {} at school | dust cut-grass horse-hair chalk
Collects {} from abroad | stamps fridge-magnets beer-mats spoons
Volunteers with {} on weekends | refugees homeless-people stray-dogs children
Uses {} for notes | Obsidian paper-cards sticky-labels Vim
Eats {} for breakfast | porridge eggs toast fruit
"""
"""A statement a line, with words that may stand in its place: every two of them are two memories."""


def same() -> list[tuple[str, str]]:
    """Pairs that say the same."""
    lines = [[part.strip() for part in line.split("|")] for line in WORDINGS.strip().splitlines()]
    return [pair for line in lines for pair in itertools.combinations(line, 2)]


def other() -> list[tuple[str, str]]:
    """Pairs that differ in the one word that matters, and in nothing else."""
    found = []
    for line in SWAPS.strip().splitlines():
        template, _, values = line.partition(" | ")
        made = [template.format(value.replace("-", " ")) for value in values.split()]
        found += list(itertools.combinations(made, 2))
    return found
