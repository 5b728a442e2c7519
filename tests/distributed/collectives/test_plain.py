"""Objects as bytes and back: equal values of equal types, damaged bytes refused, nothing called."""

import collections
import dataclasses
import datetime
import enum
import pathlib
import random
import uuid

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.collectives.plain import MAX_DEPTH, decode, encode
from disttrain.errors import CommError, DTypeError


class Color(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Config:
    sizes: tuple
    name: str = "n"


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int
    b: object


class Settings(dict):
    pass


class Touchy:
    def __init__(self):
        raise AssertionError("was called")

    def __setattr__(self, name, value):
        raise AssertionError("was called")


class Closes:
    def __del__(self):
        pass


VALUES = [
    None, True, False, ..., 0, -5, 1 << 62, 1 << 63, -(1 << 200), 0.5, float("inf"), 1 - 2j,
    "", "grün", "\ud800", b"", b"\0" * 100_000, bytearray(b"ab"), (), [], {}, set(), frozenset({1}),
    [1] * 100, [0.5] * 100, [1 << 70] * 20, [True] * 20, ["a", "", "ü"] * 20, [1, 2.0] * 20,
    list(range(20_000)), {i: str(i) for i in range(50)}, {"a": {"b": [(1, None)]}},
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.Counter("abca"),
    collections.deque([1, 2], maxlen=3), collections.defaultdict(list, {"k": [1]}),
    slice(1, None, 2), range(3, 9, 2), datetime.timedelta(1, 2, 3), datetime.date(2020, 1, 2),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC), uuid.UUID(int=7),
    pathlib.Path("/a/b"), Color.RED, Point(1, [2]), Config((1, 2)), Slotted(1, {"x": Point(0, 0)}),
    Settings(a=1), dt.float32, dt.device("cpu"), dt.Size((2, 3)), np.dtype("int16"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_keep_their_type(value):
    got = decode(encode(value))
    assert type(got) is type(value) and got == value
    assert decode(encode([value, {"k": value}]))[1]["k"] == value


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (300, 200)])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool", "complex64", "int64"])
def test_arrays_and_tensors(name, shape):
    array = np.ones(shape, dt.ones(1, dtype=getattr(dt, name)).array.dtype)
    for give in (False, True):
        raw = encode([array, "x"])
        got = decode(raw, give=give)[0]
        assert got.dtype == array.dtype and got.shape == shape and (got == array).all()
        assert got.flags.writeable and (give or not np.may_share_memory(got, raw))
    tensor = dt.ones(shape, dtype=getattr(dt, name)).T
    got = decode(encode(tensor))
    assert type(got) is dt.Tensor and got.dtype is tensor.dtype and got.shape == tensor.shape


def test_tensors_keep_what_they_are():
    leaf = dt.ones(2, requires_grad=True)
    weight, frozen = dt.nn.Parameter(dt.ones(2)), dt.nn.Parameter(dt.ones(2), requires_grad=False)
    got = decode(encode([leaf, weight, frozen, leaf * 2, dt.nn.Buffer(dt.ones(1))]))
    assert [type(t).__name__ for t in got] == ["Tensor", "Parameter", "Parameter", "Tensor",
                                               "Buffer"]  # fmt: skip
    assert [t.requires_grad for t in got] == [True, True, False, True, False]
    assert all(t.is_leaf for t in got)
    scalar = decode(encode(np.float32(2.5)))
    assert type(scalar) is np.float32 and scalar == 2.5


def test_nothing_of_a_class_is_called():
    made = object.__new__(Touchy)
    object.__setattr__(made, "a", 1)
    got = decode(encode(made))
    assert type(got) is Touchy and got.a == 1


@pytest.mark.parametrize(
    "value", [lambda: 0, open, Closes(), ValueError("x"), int, iter([])], ids=repr
)
def test_what_is_no_data_is_refused_and_named(value):
    with pytest.raises(DTypeError, match=r"object\['here'\]\[1\] is "):
        encode({"here": [0, value]})


def test_classes_without_a_name_are_refused():
    class Inner:
        pass

    with pytest.raises(DTypeError, match="at the top of a module"):
        encode(Inner())


def test_depth_has_an_end():
    deep: list = []
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert decode(encode(deep)) == deep
    for value in ([[deep]], (lambda x: x.append(x) or x)([])):
        with pytest.raises(DTypeError, match="nested deeper"):
            encode(value)


def test_damaged_bytes_are_refused_or_another_value_and_never_more():
    rng = random.Random(1)
    raw = encode(
        [
            [v for v in VALUES if len(encode(v)) < 300],
            np.ones(5),
            dt.ones(3),
            Point(1, 2),
            Color.RED,
        ]
    )
    for _ in range(1000):
        bad = raw.copy()
        if rng.random() < 0.3:
            bad = bad[: rng.randrange(len(bad))]
        for _ in range(rng.randrange(1, 4) if len(bad) else 0):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            decode(bad)
        except CommError:
            pass


def test_a_class_that_the_receiver_does_not_have_is_named():
    raw = encode(Config((1,))).tobytes().replace(b":Config", b":Nofing")
    with pytest.raises(CommError, match=r"Nofing was received, which this process does not know"):
        decode(np.frombuffer(raw, np.uint8))
