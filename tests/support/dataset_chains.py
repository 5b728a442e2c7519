"""Programs of dataset operations, drawn at random, and what they give: for pipelines, for tf.data
of the face, and for TensorFlow's own. ``python tests/support/dataset_chains.py record FILE`` in an
environment with TensorFlow writes down what TensorFlow gives; ``compare SEED COUNT`` compares there
both with it live (the project on ``PYTHONPATH``)."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

LIMIT = 40  # elements of one pass
NUMBERS = {  # of single numbers: more than a number; how the rank changes
    "map": ("map(lambda x: x*2+1)", 0),
    "filter": ("filter(lambda x: x % 3 != 1)", 0),
    "scan": ("scan(np.int64(0), lambda s, x: (s+x, s*10+x))", 0),
    "while": ("take_while(lambda x: x < {small})", 0),
    "window": ("window({n}, {n2}, {n3}, drop_remainder={flag}).flat_map(lambda w: w)", 0),
    "windows": ("window({n}, shift={shift}, stride={n3}).flat_map(lambda w: w.batch(3))", 1),
    "interleave": (
        "interleave(lambda x: D.range(x%4).map(lambda y: x*10+y), {n}, {n2}{calls})", 0
    ),
    "flat_map": ("flat_map(lambda x: D.range(x%3))", 0),
    "unique": ("unique()", 0),
    "group": ("group_by_window(lambda x: x%3, lambda k, d: d.batch({n}), window_size={n2})", 1),
    "bucket": ("bucket_by_sequence_length(lambda x: as_int(x), [3, 6], [2, 3, 2])", 1),
    "concatenate": ("concatenate(D.range(3))", 0),
}  # fmt: skip
ANY = {  # of any elements
    "batch": ("batch({n}, drop_remainder={flag})", 1),
    "take": ("take({some})", 0),
    "skip": ("skip({some})", 0),
    "repeat": ("repeat({n})", 0),
    "shuffle": ("shuffle({small}, seed={seed}, reshuffle_each_iteration={flag})", 0),
    "prefetch": ("prefetch({n0})", 0),
    "shard": ("shard(3, {n0} % 3)", 0),
    "same": ("map(lambda *x: x if len(x) > 1 else x[0], num_parallel_calls={n})", 0),
    "cache": ("cache()", 0),
}
SOURCES = (
    ("D.range({length})", 0, False),
    ("D.range(-3, {length}, {n})", 0, False),
    ("D.from_tensor_slices(np.arange({length}*2).reshape({length}, 2))", 1, False),
    ("D.from_tensors(np.arange({length}))", 1, False),
    ("D.from_tensor_slices((np.arange({length}), np.arange({length})*10))", 0, True),
    ("D.zip((D.range({length}), D.range({small})))", 0, True),
)


def drawn(rng: random.Random) -> dict[str, Any]:
    """Numbers for one operation."""
    calls = rng.choice(["", ", num_parallel_calls=2"])
    return {
        "n": rng.randrange(2 if calls else 1, 4), "n2": rng.randrange(1, 4),
        "n3": rng.randrange(1, 3), "n0": rng.randrange(4), "some": rng.randrange(-1, 8),
        "small": rng.randrange(1, 12), "seed": rng.randrange(100), "calls": calls,
        "flag": rng.random() < 0.5, "shift": rng.choice([None, 1, 2, 6]),
        "length": rng.choice([0, 1, 2, 3, 5, 7, 10, 13]),
    }  # fmt: skip


def chain(seed: int) -> str:
    """A program over ``D``, a class of datasets."""
    rng = random.Random(seed)
    source, rank, pair = rng.choice(SOURCES)
    words = [source.format(**drawn(rng))]
    for _ in range(rng.randrange(1, 6)):
        table: dict[str, Any] = dict(ANY)
        if not pair and rank == 0:
            table |= NUMBERS | {"enumerate": ("enumerate({n0})", 0)}
        if rank > 0 and not pair:
            table |= {"unbatch": ("unbatch()", -1), "pad": ("padded_batch({n})", 1)}
        name = rng.choice(sorted(table))
        text, more = table[name]
        words.append(text.format(**drawn(rng)))
        rank, pair = rank + more, pair or name == "enumerate"
    return ".".join(words)


def made(text: str, datasets: Any, as_int: Callable[[Any], Any] = int) -> Any:
    """The dataset of a program."""
    return eval(text, {"D": datasets, "np": np, "as_int": as_int})  # (drawn here, above)


def shown(element: Any) -> Any:
    """An element as JSON has it."""
    if isinstance(element, tuple):
        return [shown(e) for e in element]
    array = np.asarray(element)
    return [array.dtype.name, array.tolist()]


def elements(iterator: Any) -> list:
    """So many elements as are compared; an error is the last."""
    found: list = []
    try:
        found.extend(shown(e) for e in itertools.islice(iterator, LIMIT))
    except Exception as error:
        if type(error).__name__ not in ("InvalidArgumentError", "ShapeError"):
            raise
        found.append("error")
    return found


def spec(found: Any) -> Any:
    """A specification as JSON has it."""
    if isinstance(found, tuple):
        return [spec(s) for s in found]
    shape, dtype = found.shape, getattr(found.dtype, "name", str(found.dtype))
    rank = getattr(shape, "rank", 0)
    return [None if shape is None or rank is None else list(shape), dtype]


def result(text: str, datasets: Any, as_int: Callable[[Any], Any] = int) -> dict[str, Any]:
    """Two passes, the cardinality and the specification of a program."""
    found = made(text, datasets, as_int)
    return {
        "cardinality": int(found.cardinality()),
        "passes": [elements(found.as_numpy_iterator()) for _ in range(2)],
        "spec": spec(found.element_spec),
    }


def resumed(text: str, datasets: Any, count: int) -> tuple[list, list]:
    """What follows ``count`` elements, and what follows them in another pipeline that goes on."""
    it = made(text, datasets).as_numpy_iterator()
    if "error" in elements(itertools.islice(it, count)):
        return [], []
    state = it.state_dict()
    other = made(text, datasets).as_numpy_iterator()
    other.load_state_dict(state)
    return elements(it), elements(other)


def main(words: list[str]) -> int:
    """Record, or compare live."""
    import tensorflow as tf

    real = lambda text: result(text, tf.data.Dataset, lambda x: tf.cast(x, tf.int32))
    if words[0] == "record":
        rows = [{"program": t, **real(t)} for t in dict.fromkeys(map(chain, range(160)))]
        text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        with open(words[1], "w") as file:
            source = f"TensorFlow {tf.__version__}, by tests/support/dataset_chains.py"
            file.write(f'{{"source":"{source}","rows":[\n{text}\n]}}\n')
        return 0
    from disttrain.compat.tensorflow.data import DatasetV2
    from disttrain.data.pipeline import Pipeline

    wrong = 0
    for seed in range(int(words[1]), int(words[1]) + int(words[2])):
        text = chain(seed)
        wanted = json.dumps(real(text))
        for datasets in (Pipeline, DatasetV2):
            found = json.dumps(result(text, datasets))
            before, after = resumed(text, datasets, seed % 7)
            if found != wanted or before != after:
                wrong += 1
                print(seed, datasets.__name__, text, wanted, found, before, after, sep="\n  ")
    print(f"{words[2]} programs, {wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
