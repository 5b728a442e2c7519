"""Parts of arrays, and copies with other parts, for a program whose arrays are tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import indexing
from disttrain.arrays.lifting import Lifting
from disttrain.arrays.program.making import Making
from disttrain.arrays.program.updates import Box, Parts

PARTS = Parts(
    Making(Lifting()), lambda key, shape: indexing.items(key, shape, dt.as_tensor), "{kind}, {own}"
)


def test_reads():
    x, read = dt.tensor([0.0, 1.0, 2.0]), PARTS.reader()
    assert read(x, 1).item() == 1.0 and read(x, 9).item() == 2.0
    at = PARTS.at(x)[9]
    assert at.get().item() == 2.0 and at.get(fill_value=5).item() == 5.0
    assert at.get(mode="fill").isnan().item()
    assert repr(PARTS.at(x)) == f"_IndexUpdateHelper({x!r})"
    with pytest.raises(ValueError, match="Unknown gather mode"):
        at.get(mode="odd")


def test_updates_change_copies():
    x = dt.tensor([0.0, 1.0, 2.0])
    part = PARTS.at(x)[1:]
    assert part.set([8, 9]).tolist() == [0.0, 8.0, 9.0]
    assert part.add(1).tolist() == [0.0, 2.0, 3.0] and part.subtract(1).tolist() == [0.0, 0.0, 1.0]
    assert part.mul(4).tolist() == [0.0, 4.0, 8.0] and part.divide(2).tolist() == [0.0, 0.5, 1.0]
    assert part.power(2).tolist() == [0.0, 1.0, 4.0]
    assert part.min(1).tolist() == [0.0, 1.0, 1.0] and part.max(2).tolist() == [0.0, 2.0, 2.0]
    assert part.apply(lambda v: -v).tolist() == [0.0, -1.0, -2.0]
    assert PARTS.at(x)[9].set(1, mode="clip").tolist() == [0.0, 1.0, 1.0]
    assert PARTS.at(x)[9].set(1).tolist() == x.tolist() == [0.0, 1.0, 2.0]


def test_values_of_other_types_are_warned_of():
    with pytest.warns(FutureWarning, match="float32, int32"):
        out = PARTS.at(dt.tensor([1, 2], dtype=dt.int32))[0].set(dt.tensor(1.5))
    assert out.tolist() == [1, 2]


class Held:
    """An array that is replaced, not changed."""

    shape, dtype, ndim = (2,), "numbers", 1

    def __init__(self, value):
        self.value = dt.as_tensor(value)

    def __getitem__(self, key):
        return PARTS.reader()(self.value, key)

    @property
    def at(self):
        return PARTS.at(self.value)


def test_boxes_hold_the_last_array():
    class Own(Box):
        made = Held

    box = Own([1.0, 2.0])
    assert box[1].item() == 2.0 and (box.shape, box.dtype, box.ndim) == ((2,), "numbers", 1)
    box[1] = 5.0
    assert box[...].tolist() == [1.0, 5.0]
