"""Values as leaves: equal values have equal hashes in all processes, others differ."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import random
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.equality.leaves import combined, leaves
from disttrain.errors import ConfigError

Pair = namedtuple("Pair", "a b")


class Color(enum.Enum):
    RED, BLUE = 1, 2


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    layers: tuple = (1, 2)


def whole(value):
    return combined(leaves(value))


MANY = [
    *(None, True, False, 0, 1, -1, 2**80, 1.0, 0.0, -0.0, float("inf"), float("nan"), 1j, -1j),
    *("", "1", "None", "\ud800", b"", b"1", (), [], {}, set(), (1,), [1], [1, [2]], [[1], 2]),
    *({"a": 1}, {"b": 1}, {1: "a"}, {"1": "a"}, {True: "a"}, {1, 2}, {1, 3}, frozenset({1, 2})),
    *(Color.RED, Color.BLUE, Level.LOW, Settings(), Settings(0.2), Settings(layers=(1, 3))),
    *(np.float32(1), np.float64(1), np.int64(1), np.zeros(3), np.zeros((3, 1)), np.zeros(4)),
    *(np.zeros(3, np.float32), np.zeros(3, ml_dtypes.bfloat16), np.array([1, 2]), np.array("ab")),
    *(
        dt.ones(3),
        dt.ones(2),
        dt.ones(3, dtype=dt.float64),
        -dt.ones(3),
        dt.zeros(0),
        dt.zeros(0, 1),
    ),
    *(np.array([0.0]), np.array([-0.0]), np.array([np.nan]), np.array([1j]), np.array([-1j])),
    *(dt.float32, dt.float16, dt.device("cpu"), np.dtype("f4"), int, float, len, max, slice(1, 2)),
    *(pathlib.PurePosixPath("a"), decimal.Decimal("1"), datetime.date(2020, 1, 1), range(3), ...),
    *(dt.Generator().manual_seed(1), dt.Generator().manual_seed(2), random.Random(1)),
    *(random.Random(2), np.random.default_rng(1), np.random.default_rng(2)),
    *(np.random.RandomState(1), np.random.RandomState(2), deque([1]), dt.ones(2, 3).to_sparse()),
]


def test_other_values_have_other_hashes():
    found = {}
    for i, value in enumerate(MANY):
        if type(value) is dt.Tensor:  # what an array of numpy with these elements is
            value = [value]
        h = whole(value)
        assert h not in found, (value, MANY[found[h]])
        found[h] = i


def test_equal_values_have_equal_hashes_in_every_process():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from tests.distributed.equality.test_leaves import MANY, whole;"
        "print([whole(v) for v in MANY])"
    )
    folder = str(pathlib.Path(__file__).parents[3])
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, folder], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""}, cwd=folder,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1] == f"{[whole(v) for v in MANY]}\n"


@pytest.mark.parametrize(
    "a, b",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        ({("a", 1): 0, frozenset({1, 2}): 1}, {frozenset({2, 1}): 1, ("a", 1): 0}),
        (float("nan"), -float("nan")),
        (np.array([np.nan, 1]), np.array([-np.nan, 1])),
        (np.array([complex(np.nan, 1)]), np.array([complex(-np.nan, 1)])),
        (np.ones((2, 3)).T, np.ones((3, 2))),
        (np.arange(6.0)[::2], np.array([0.0, 2.0, 4.0])),
        (dt.arange(6.0).view(2, 3).t(), dt.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])),
        (dt.ones(3), dt.ones(3, requires_grad=True)),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(int, a=1), {"a": 1}),
        (np.array([1.0, 2.0], ">f8"), np.array([1.0, 2.0])),
    ],
)
def test_what_does_not_count(a, b):
    assert whole(a) == whole(b)


def test_types_of_containers_and_numbers_count():
    alike = [whole(v) for v in ((1, 2), [1, 2], Pair(1, 2), deque([1, 2]), {1, 2})]
    assert len(set(alike)) == len(alike)
    assert whole(True) != whole(1) != whole(1.0) != whole(np.float64(1.0))


def test_paths_say_where_a_leaf_is():
    value = {"model": [dt.ones(2), {"lr": 0.1}], "opt": Settings()}
    paths = [leaf.path for leaf in leaves(value)]
    assert "['model'][0]" in paths and "['model'][1]['lr']" in paths and "['opt'].lr" in paths


def test_long_sequences_are_hashed_in_runs():
    long = [*range(100_000)]
    found = leaves(long)
    assert len(found) < 7000 and found[1].path == "[0:16]" and "15]" in found[1].told
    other = [*long[:50_000], -1, *long[50_001:]]
    apart = [a.path for a, b in zip(found, leaves(other), strict=True) if a.hash != b.hash]
    assert apart == ["[50000:50016]"]
    assert whole(tuple(long)) != whole(long) != whole([float(i) for i in long])
    assert whole([0.0] * 20) != whole([-0.0] * 20)
    assert whole([float("nan")] * 20) == whole([-float("nan")] * 20)
    assert whole({*"abc", 1}) == whole({1, *"cba"}) != whole({*"abc", 1.5})


def test_modules_optimizers_and_schedulers():
    net = dt.nn.Sequential(dt.nn.Linear(2, 3), dt.nn.BatchNorm1d(3))
    names = {leaf.path for leaf in leaves(net)}
    assert {".0.weight", ".1.running_mean", ".1.num_batches_tracked"} <= names
    optimizer = dt.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    before = whole(optimizer)
    assert before == whole(dt.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    optimizer.param_groups[0]["lr"] = 0.2
    assert before != whole(optimizer)
    scheduler = dt.optim.lr_scheduler.StepLR(optimizer, 3)
    assert whole(scheduler)


def test_numbers_and_measures_are_kept_for_the_reader():
    (leaf,) = leaves(0.5)
    assert leaf.told == "0.5" and leaf.number == 0.5
    (leaf,) = leaves(dt.tensor([1.0, 2.0]))
    assert leaf.told == "float32[2] [1.0, 2.0]" and leaf.stats.high == 2.0
    (leaf,) = leaves(np.zeros(1000))
    assert leaf.told == "float64[1000]"
    (leaf,) = leaves("x" * 1000)
    assert len(leaf.told) < 80


def local():
    return lambda: 0


class Unknown:
    pass


@pytest.mark.parametrize(
    "value, said",
    [
        (Unknown(), "Unknown, of which nobody knows when it is equal"),
        ({"a": [Unknown()]}, r"the part \['a'\]\[0\] is a .*Unknown"),
        (local(), "no name of its own"),
        (object(), "builtins.object"),
        (iter([]), "state_dict"),
        ({1: {Unknown()}}, "Unknown"),
        ({Unknown(): 1}, "Unknown"),
        (np.array([Unknown()], object), "Unknown"),
    ],
)
def test_what_nobody_can_compare_is_an_error(value, said):
    with pytest.raises(ConfigError, match=said):
        leaves(value)


def test_circles_and_depth_are_errors():
    a: list = []
    a.append({"a": a})
    with pytest.raises(ConfigError, match="contains itself"):
        leaves(a)
    deep: list = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ConfigError, match="200 containers deep"):
        leaves(deep)
    twice = [1]
    assert len(leaves([twice, twice])) == 5  # the same twice is no circle


def test_tensors_without_numbers():
    meta = dt.empty(3, device="meta")
    assert whole(meta) == whole(dt.empty(3, device="meta")) != whole(dt.empty(4, device="meta"))


def test_masks_count_and_what_they_hide_does_not():
    def masked(values, mask):
        return combined(leaves(np.ma.masked_array(values, mask=mask)))

    assert masked([1.0, 2.0], [False, True]) == masked([1.0, 5.0], [False, True])
    assert masked([1.0, 2.0], [False, True]) != masked([1.0, 2.0], [False, False])
    assert masked([1.0, 2.0], [False, True]) != masked([3.0, 2.0], [False, True])
    assert masked([1.0, 2.0], False) != combined(leaves(np.array([1.0, 2.0])))
    assert masked([1, 2], [False, True]) == masked([1, 7], [False, True])
