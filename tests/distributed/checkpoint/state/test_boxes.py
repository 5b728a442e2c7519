"""Boxes: what is read of stored pieces fills what is wanted, however both are split."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.distributed.checkpoint.state.boxes import fault, meetings, runs


def split(shape: tuple, rng: np.random.Generator) -> list:
    """Boxes that make up an array of ``shape``: cut at random, again and again."""
    boxes = [((0,) * len(shape), shape)]
    for _ in range(int(rng.integers(0, 9))):
        at, size = boxes.pop(int(rng.integers(len(boxes))))
        d = int(rng.integers(len(shape)))
        cut = int(rng.integers(0, size[d] + 1))
        second = tuple(a + cut * (k == d) for k, a in enumerate(at))
        boxes.append((at, tuple(cut if k == d else n for k, n in enumerate(size))))
        boxes.append((second, tuple(n - cut if k == d else n for k, n in enumerate(size))))
    return boxes


def part(array: np.ndarray, at: tuple, size: tuple) -> np.ndarray:
    return array[tuple(slice(a, a + n) for a, n in zip(at, size))]


@pytest.mark.parametrize("seed", range(40))
def test_any_split_fills_any_other(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
    full = np.arange(np.prod(shape)).reshape(shape)
    stored, wanted = split(shape, rng), split(shape, rng)
    assert fault(shape, stored) == "" == fault(shape, wanted)
    pieces = [part(full, *box).copy() for box in stored]
    targets = [np.full(box[1], -1) for box in wanted]
    elements = 0
    for m in meetings(wanted, stored):
        part(targets[m.wanted], m.in_wanted, m.sizes)[...] = part(
            pieces[m.stored], m.in_stored, m.sizes
        )
        elements += int(np.prod(m.sizes))
    assert elements == full.size  # nothing is read twice
    for box, target in zip(wanted, targets):
        np.testing.assert_array_equal(target, part(full, *box))


def test_many_boxes_are_found_as_few_are():
    stored = [((k, 0), (1, 5)) for k in range(200)]
    found = meetings([((17, 2), (30, 2))], stored)
    assert [m.stored for m in found] == list(range(17, 47))
    assert fault((200, 5), stored) == ""


@pytest.mark.parametrize("seed", range(30))
def test_runs_name_the_elements_of_a_box(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 4)))
    at = tuple(int(rng.integers(n)) for n in shape)
    sizes = tuple(int(rng.integers(1, n - a + 1)) for n, a in zip(shape, at))
    inner, begins = runs(shape, at, sizes)
    told = (begins[:, None] + np.arange(inner)).reshape(-1)
    full = np.arange(int(np.prod(shape))).reshape(shape)
    np.testing.assert_array_equal(told, part(full, at, sizes).reshape(-1))


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ([((0, 0), (2, 3)), ((1, 0), (1, 3))], "overlap"),
        ([((0, 0), (1, 3))], "3 of 6"),
        ([((0, 0), (2, 4))], "outside"),
        ([((0, -1), (2, 3))], "outside"),
        ([((0,), (2,))], "outside"),
    ],
)
def test_what_is_no_whole_tensor_is_named(boxes, said):
    assert said in fault((2, 3), boxes)
