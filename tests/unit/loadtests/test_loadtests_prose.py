"""Texts on topics."""

from __future__ import annotations

from collections import Counter

from loadtests.prose import OWN_TOPICS, TOPIC_WORDS, Prose, topic, vocabulary


def test_the_same_seed_says_the_same() -> None:
    def texts(seed: str) -> list[str]:
        talk = Prose(seed)
        return [talk.said(), talk.answered(), talk.stated(), talk.asked()]

    assert texts("u") == texts("u")
    assert texts("u") != texts("v")


def test_the_vocabulary_is_large_and_unevenly_used() -> None:
    words = vocabulary()
    assert len(words) == len(set(words)) > 5000
    talk = Prose("u")
    counts = Counter(word for _ in range(2000) for word in talk.answered().split())
    assert len(counts) > 2000
    assert sum(count for _, count in counts.most_common(100)) > sum(counts.values()) / 3


def test_questions_are_about_what_was_said() -> None:
    talk = Prose("u")
    said = {word for _ in range(1500) for word in talk.said().replace(".", "").split()}
    asked = [word for _ in range(50) for word in talk.asked().strip("?").split()[-2:]]
    assert sum(word in said for word in asked) > 0.9 * len(asked)


def test_topics_are_few_and_come_back() -> None:
    assert topic(7) is topic(7)
    assert len(topic(7)) == TOPIC_WORDS
    assert len({tuple(topic(n)) for n in range(OWN_TOPICS)}) == OWN_TOPICS
