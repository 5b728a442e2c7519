"""Whole pipelines: what TensorFlow gives for the same program, positions, uses."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain.data import DataLoader
from disttrain.data.pipeline import Pipeline
from disttrain.errors import ConfigError
from support.dataset_chains import result, resumed

ROWS = json.loads(Path(__file__).with_name("tensorflow.json").read_text())["rows"]
PARTS = [ROWS[i::8] for i in range(8)]


@pytest.mark.parametrize("rows", PARTS, ids=range(8))
def test_programs_give_what_tensorflow_gives(rows):
    for row in rows:
        wanted = {k: v for k, v in row.items() if k != "program"}
        assert json.loads(json.dumps(result(row["program"], Pipeline))) == wanted, row["program"]


@pytest.mark.parametrize("rows", PARTS, ids=range(8))
def test_programs_go_on_from_a_position(rows):
    for i, row in enumerate(rows):
        rest, after = resumed(row["program"], Pipeline, i % 5)
        assert rest == after, row["program"]


def test_reduce_and_one_element():
    assert Pipeline.range(5).reduce(0, lambda s, x: s + x).item() == 10
    total, count = Pipeline.range(5).reduce((0.0, 0), lambda s, x: (s[0] + x, s[1] + 1))
    assert (total.item(), count.item()) == (10, 5)
    assert Pipeline.from_tensors("x").get_single_element() == b"x"
    for made in (Pipeline.range(0), Pipeline.range(2)):
        with pytest.raises(ConfigError, match="exactly one"):
            made.get_single_element()


def test_lengths():
    assert len(Pipeline.range(5).batch(2)) == 3
    assert bool(Pipeline.range(0))
    with pytest.raises(TypeError, match="infinite"):
        len(Pipeline.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(Pipeline.from_generator(lambda: [1]))


def test_a_dataloader_takes_it_and_keeps_its_place():
    def loader():
        return DataLoader(Pipeline.range(12).shuffle(6, seed=4), batch_size=3)

    whole = [b.tolist() for b in loader()]
    assert sorted(chain(*whole)) == list(range(12))
    first = loader()
    it = iter(first)
    next(it)
    state = first.state_dict()
    other = loader()
    other.load_state_dict(state)
    assert [b.tolist() for b in other] == whole[1:]


def test_the_position_of_the_last_iterator():
    made = Pipeline.range(4)
    it = iter(made)
    next(it)
    state = made.state_dict()
    again = Pipeline.range(4)
    again.load_state_dict(state)
    assert [x.item() for x in again] == [1, 2, 3]
    assert [x.item() for x in again] == [0, 1, 2, 3]
    del it
    with pytest.raises(ConfigError, match="keep it"):
        made.state_dict()


def test_apply_and_repr():
    assert next(iter(Pipeline.range(3).apply(lambda p: p.take(1)))).item() == 0
    assert repr(Pipeline.range(3).batch(2)) == "<Pipeline of Batched>"


def test_elements_on_a_device_stay_there():
    made = Pipeline.range(4).map(lambda x: x.to("meta")).batch(2)
    assert [x.shape for x in made] == [dt.Size([2]), dt.Size([2])]
    assert next(iter(made)).device.type == "meta"


def test_samples_of_numpy():
    found = list(Pipeline.from_tensor_slices({"a": np.arange(2)}).as_numpy_iterator())
    assert found == [{"a": 0}, {"a": 1}] and isinstance(found[0]["a"], np.integer)
