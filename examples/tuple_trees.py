"""Track trees of tuples as Storm's acker does, and count the same words exactly once.

python examples/tuple_trees.py

A spout emits sentences, a bolt splits them into words, and another counts the words. The acker
knows of each sentence one number: the XOR of the ids of all tuples that were sent and not yet
acknowledged. Each id comes twice, once when its tuple is sent and once when it is processed, so the
number is zero when the whole tree was processed. A worker that dies leaves it at another number,
and after a time-out the spout emits the sentence again: at least once.

The second part counts the words in a durable run that dies, too. Its commit stores the position in
the input together with the counts, so nothing has to be tracked per record: exactly once.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lowwater as lw

Message = dict[str, Any]
SENTENCES = {"s1": "to be or not to be", "s2": "that is the question", "s3": "to die to sleep"}


class Acker:
    """Says once of each tree of tuples whether it was processed in time."""

    open_ids = lw.value_cell(0)  # XOR of the ids that were sent and not acknowledged
    is_begun = lw.value_cell(False)
    timeout = lw.timer()

    def on_record(self, message: Message, ctx: lw.ProcessContext) -> None:
        ctx.open_ids.set(ctx.open_ids.get() ^ message["ids"])
        ctx.is_begun.set(ctx.is_begun.get() or message["begins"])
        if ctx.timeout.get() is None:  # an acknowledgement may come before the beginning
            ctx.timeout.set(ctx.time + lw.duration("30s"))
        if ctx.is_begun.get() and ctx.open_ids.get() == 0:
            self.finish("ack", ctx)

    def on_timer(self, timer: str, ctx: lw.ProcessContext) -> None:
        self.finish("fail", ctx)

    def finish(self, outcome: str, ctx: lw.ProcessContext) -> None:
        if ctx.is_begun.get():
            ctx.emit({"outcome": outcome})
        for each in (ctx.open_ids, ctx.is_begun, ctx.timeout):
            each.clear()


def outcomes(messages: list[Message]) -> dict[str, str]:
    """Return what the acker tells the spout of each tree."""
    stream = lw.from_iterable(messages, time="at", unit="s", watermark=lw.Ascending())
    found = stream.key_by("root").process(Acker()).collect()
    return {str(told.key): str(told.value["outcome"]) for told in found.elements()}


def topology(
    sentences: Mapping[str, str], counts: Counter[str], ids: random.Random, dies_at: str | None
) -> Iterator[Message]:
    """Play spout and bolts once; yield what they tell the acker.

    Args:
        sentences: What the spout emits, by the id of the root.
        counts: The counting bolt's counts, which change.
        ids: Gives the ids of tuples.
        dies_at: The word at which the worker dies that counts; another takes its place.
    """
    for at, (root, sentence) in enumerate(sentences.items()):
        tuple_id = ids.getrandbits(62)
        yield {"at": at, "root": root, "begins": True, "ids": tuple_id}
        words = [(word, ids.getrandbits(62)) for word in sentence.split()]
        splits = tuple_id  # the splitting bolt acknowledges its tuple, and sends the words
        for _, word_id in words:
            splits ^= word_id
        yield {"at": at, "root": root, "begins": False, "ids": splits}
        for word, word_id in words:
            if word == dies_at:
                break  # this word and those behind it were in the memory of the worker
            counts[word] += 1
            yield {"at": at, "root": root, "begins": False, "ids": word_id}


def at_least_once(dies_at: str) -> Counter[str]:
    """Count as Storm does, with a worker that dies once; print what the acker says."""
    counts: Counter[str] = Counter()
    ids = random.Random(7)
    left: dict[str, str] = SENTENCES
    while left:
        told = outcomes(list(topology(left, counts, ids, dies_at)))
        print("the acker says:", told)
        left = {root: left[root] for root, outcome in told.items() if outcome == "fail"}
        dies_at = ""
    return counts


def words_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a sentence, as the bolt does."""
    return [{**record, "word": word} for word in record["sentence"].split()]


def exactly_once(folder: Path) -> Counter[str]:
    """Count in a durable run that dies after its first bundle, and is started again."""
    lines = [
        json.dumps({"at": f"2000-01-01T12:00:0{at}Z", "sentence": sentence})
        for at, sentence in enumerate(SENTENCES.values())
    ]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")

    def run(progress: Any = False) -> None:
        sentences = lw.read_jsonl(folder / "in.jsonl", time="at", watermark=lw.Ascending())
        words = sentences.flat_map(words_of).key_by("word")
        counts = words.window(lw.GlobalWindow()).aggregate(n=lw.count())
        counts.write_jsonl(folder / "out.jsonl").run(
            state=folder / "state", commit_every="bundle", bundle_size=1, progress=progress
        )

    def die(metrics: lw.Metrics) -> None:
        if metrics.bundles == 1:
            raise KeyboardInterrupt

    try:
        run(die)
    except KeyboardInterrupt:
        print("the run died, and is started again")
    run()
    rows = map(json.loads, (folder / "out.jsonl").read_text().splitlines())
    return Counter({row["word"]: row["n"] for row in rows})


def main() -> None:
    right = Counter(word for sentence in SENTENCES.values() for word in sentence.split())
    counted = at_least_once("question")
    print("at least once, counted too often:", dict(counted - right))
    with tempfile.TemporaryDirectory() as folder:
        counted = exactly_once(Path(folder))
    print("exactly once, counted too often:", dict(counted - right), counted == right)


if __name__ == "__main__":
    main()
