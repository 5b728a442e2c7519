"""Execution traces in MLCommons' Chakra format: what each rank computed and sent, and what waited
for what, on a simulated cluster.

A file ``NAME.R.et`` holds messages of the schema ``et_def.proto``, each behind its length as a
varint: first ``GlobalMetadata``, then a ``Node`` for each thing that rank R did. Numbers of fields,
kinds of nodes and of collectives are the schema's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....errors import ConfigError
from ....protobuf import integer, nested, string
from .timeline import COMPUTE, Timeline

VERSION = "0.0.4"
COMP, SEND, RECV, COLL = 4, 5, 6, 7  # kinds of nodes
VERBS = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
          "reduce_scatter", "reduce_scatter_block", "barrier")  # fmt: skip
_OTHERS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all",
           "close": "barrier", "split": "barrier"}  # fmt: skip


@dataclass
class Node:
    """One thing that a rank did. Times are in microseconds; ``nbytes``: of a rank's part, of what
    communicates; ``ranks``: who takes part."""

    name: str
    kind: int
    start: float
    took: float
    after: list[int] = field(default_factory=list)  # the numbers of what the rank did before
    needs: list[int] = field(default_factory=list)  # and of what brought its data
    nbytes: int = 0
    ranks: tuple[int, ...] = ()
    flops: int = 0


def verb_of(name: str) -> str | None:
    """The collective of a name such as "gloo:all_reduce" or "all_gather_single"; None: of none."""
    plain = name.rpartition(":")[2].lstrip("_").removesuffix("_coalesced")
    plain = plain.removesuffix("_base").removesuffix("_single")
    plain = _OTHERS.get(plain, plain)
    return plain if plain in VERBS else None


def _attribute(name: str, number: int, value: bytes | int) -> bytes:
    """An ``AttributeProto`` whose value is the field ``number``."""
    one = nested(number, value) if isinstance(value, bytes) else integer(number, value)
    return nested(10, string(1, name) + one)


_INT32, _INT64, _BOOL, _STRING = 7, 9, 27, 29


def _attributes(node: Node) -> Iterator[bytes]:
    yield _attribute("is_cpu_op", _BOOL, 0)
    if node.kind == COMP:
        if node.flops:
            yield _attribute("num_ops", _INT64, node.flops)
        return
    yield _attribute("comm_size", _INT64, node.nbytes)
    if node.kind == COLL:
        verb = verb_of(node.name)
        assert verb is not None
        yield _attribute("comm_type", _INT64, VERBS.index(verb))
        group = ",".join(map(str, node.ranks))
        yield _attribute("involved_ranks", _STRING, group.encode())
    elif len(node.ranks) == 2:
        yield _attribute("comm_src", _INT32, node.ranks[0])
        yield _attribute("comm_dst", _INT32, node.ranks[1])


def encode(number: int, node: Node) -> bytes:
    """The message ``Node``."""
    parts = [integer(1, number), string(2, node.name), integer(3, node.kind)]
    parts += [integer(4, n) for n in node.after] + [integer(5, n) for n in node.needs]
    parts += [integer(6, max(0, round(node.start))), integer(7, max(0, round(node.took)))]
    return b"".join([*parts, *_attributes(node)])


def _framed(message: bytes) -> bytes:
    return nested(0, message)[1:]  # its length and itself, without a field's key


def write(path: str | Path, nodes: Sequence[Node]) -> None:
    """One rank's file. Raises ``ConfigError`` where it cannot be written."""
    try:
        with Path(path).open("wb") as file:
            file.write(_framed(string(1, VERSION)))
            for number, node in enumerate(nodes):
                file.write(_framed(encode(number, node)))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def of_timeline(timeline: Timeline, rank: int) -> list[Node]:
    """What a simulated rank did: its computations after each other; what is sent after what was
    computed before; and what is computed then, after what had come."""
    items: list[tuple[float, int, Node]] = []
    for what, name, start, end in timeline.spans[rank]:
        if what == COMPUTE:
            items.append((start, 1, Node(name, COMP, start * 1e6, (end - start) * 1e6)))
    both = zip(timeline.flights[rank], timeline.carried[rank], strict=True)
    for (name, start, end), (nbytes, ranks) in both:
        kind = COLL if verb_of(name) else SEND if rank == ranks[0] else RECV
        took = (end - start) * 1e6
        node = Node(name, kind, start * 1e6, took, nbytes=nbytes, ranks=ranks)
        items.append((start, 0, node))
    items.sort(key=lambda item: item[:2])
    return linked(node for _, _, node in items)


def linked(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, which begin one after the other, with what they come after."""
    found: list[Node] = []
    computed: int | None = None
    coming: list[int] = []
    for number, node in enumerate(nodes):
        if node.kind == COMP:
            arrived = [n for n in coming if found[n].start + found[n].took <= node.start + 1e-3]
            node.needs, coming = arrived, [n for n in coming if n not in arrived]
            node.after = [] if computed is None else [computed]
            computed = number
        else:
            node.after = [] if computed is None else [computed]
            coming.append(number)
        found.append(node)
    return found


def write_timeline(timeline: Timeline, name: str | Path) -> list[Path]:
    """A simulated run: a file for each rank. Returns them."""
    paths = [Path(f"{name}.{rank}.et") for rank in range(timeline.num_ranks)]
    for rank, path in enumerate(paths):
        write(path, of_timeline(timeline, rank))
    return paths
