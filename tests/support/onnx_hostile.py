"""Models that are damaged on purpose: by flipped bits, cuts, foreign bytes, rewritten messages."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx

import disttrain as dt
from disttrain.errors import NodeError, SerializationError, ShapeError
from disttrain.onnx.reading.elements import held_in
from disttrain.onnx.reading.graph import Limits
from support.onnx_graphs import INT64, array, classifier, model, node, port, subgraph

LIMITS = Limits(elements=1 << 20, nodes=10_000, iterations=1000)
SECONDS = 20.0  # that no single model may take
HUGE = (-1, 0, 1, 2**31, 2**40, 2**62, -(2**63))


def sequence() -> onnx.ModelProto:
    """A recurrent network, a loop and a branch."""
    rng = np.random.default_rng(0)
    body = subgraph(
        [node("Add", "v one", "w"), node("Identity", "c", "go")],
        [port("i", INT64, []), port("c", 9, []), "v"],
        [port("go", 9, []), "w"],
    )
    inner = subgraph([node("Neg", "b", "n")], [], ["n"])
    arrays = (
        array("w0", rng.standard_normal((1, 8, 3))),
        array("r0", rng.standard_normal((1, 8, 2))),
        array("one", 1.0),
        array("three", 3, np.int64),
        array("on", True, np.bool_),
        array("shape", [0, -1], np.int64),
    )
    nodes = [
        node("LSTM", "x w0 r0", "a", hidden_size=2),
        node("Reshape", "a shape", "a2"),
        node("Loop", "three on a2", "b", body=body),
        node("If", "on", "y", then_branch=inner, else_branch=inner),
    ]
    return model(nodes, [port("x", 1, ["time", "batch", 3])], ["y"], arrays)


MODELS = (classifier(), sequence())
BYTES = tuple(m.SerializeToString() for m in MODELS)


def _flipped(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _foreign(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randrange(1, 20)) + data[at + rng.randrange(20) :]


def _rewritten(rng: random.Random, data: bytes) -> bytes:
    """One field of a message, as somebody who knows the format would change it."""
    made = onnx.ModelProto.FromString(data)
    graph = made.graph
    victim, other = rng.choice(graph.node), rng.choice(graph.node)
    tensor = rng.choice(graph.initializer)

    def attribute() -> None:
        a = (
            rng.choice(victim.attribute)
            if victim.attribute
            else victim.attribute.add(name="axis", type=2)
        )
        a.i = rng.choice(HUGE)
        if a.ints:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(HUGE)

    def sizes() -> None:
        tensor.dims[:] = [rng.choice(HUGE) for _ in range(rng.randint(0, 3))]

    def numbers() -> None:
        tensor.raw_data = rng.randbytes(len(tensor.raw_data))

    changes: list[Callable[[], Any]] = [
        attribute,
        sizes,
        numbers,
        lambda: victim.input.__setitem__(0, other.output[0]),
        lambda: victim.output.__setitem__(0, other.output[0]),
        lambda: setattr(victim, "op_type", other.op_type),
        lambda: setattr(victim, "domain", "mine"),
        lambda: setattr(tensor, "data_type", rng.randint(0, 30)),
        lambda: setattr(tensor, "data_location", 1),
        lambda: setattr(made.opset_import[0], "version", rng.choice(HUGE)),
        lambda: victim.input.append(other.output[0]),
        lambda: graph.node.reverse(),
        lambda: graph.output.extend(graph.input),
    ]
    rng.choice(changes)()
    return made.SerializeToString()


_WAYS = {"flipped": _flipped, "cut": _cut, "foreign": _foreign, "rewritten": _rewritten}
KINDS = tuple(_WAYS)


def attack(kind: str, seeds: Iterable[int]) -> Counter:
    """What became of damaged models. Any other error than ours comes through."""
    outcomes: Counter = Counter()
    for seed in seeds:
        rng = random.Random(f"{kind} {seed}")
        data = _WAYS[kind](rng, rng.choice(BYTES))
        start = time.monotonic()
        outcomes[_outcome(data)] += 1
        assert time.monotonic() - start < SECONDS, (kind, seed)
    return outcomes


def _outcome(data: bytes) -> str:
    try:
        loaded = dt.onnx.load(data, limits=LIMITS)
    except SerializationError:
        return "refused"
    try:
        loaded.run({p.name: _feed(p) for p in loaded.inputs})
    except (NodeError, ShapeError, dt.errors.DTypeError, dt.errors.ConfigError):
        return "not run"
    return "ran"


def _feed(p: Any) -> np.ndarray:
    sizes = [n if isinstance(n, int) else 2 for n in p.shape or ()]
    if any(n < 0 or n > 100 for n in sizes):
        raise ShapeError(f"{p}: not run")
    return np.ones(sizes, held_in(p.kind or 1).np)
