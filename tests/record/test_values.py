"""Measures of tensors: parts, wholes, and what is remembered."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.llvm.kernels.digest import digest
from disttrain.record.values import Known, array_of, measure, shape_text, tensors

pytestmark = pytest.mark.simulated


def test_parts_of_a_batch_add_up():
    x = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    parts = [measure(x[2 * r : 2 * r + 2], (r, 3)) for r in range(3)]
    assert sum(p.hash for p in parts) % 2**64 == digest(x).hash
    assert [p.start for p in parts] == [0, 10, 20]
    assert {p.whole for p in parts} == {30}


@pytest.mark.parametrize("dim", [0, 1])
def test_shards_of_a_dtensor_add_up(dim):
    import disttrain.distributed as dist
    from disttrain.distributed.tensor import Shard, distribute_tensor

    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)

    def body():
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (3,))
        return measure(array_of(distribute_tensor(dt.from_numpy(x.copy()), mesh, [Shard(dim)])))

    found = dist.simulate(body, 3).results
    assert sum(p.hash for p in found) % 2**64 == digest(x).hash
    assert sum(p.numel for p in found) == 35
    assert sum(p.sketch for p in found) == pytest.approx(digest(x).sketch)


def test_what_has_no_numbers_has_no_measure():
    meta = dt.empty(3, device="meta")
    assert measure(array_of(meta)).numel == 0
    assert measure(np.array([object()])).numel == 0
    assert shape_text(array_of(meta)) == "float32[3]"


def test_what_is_known_is_measured_once_until_it_is_written_to(monkeypatch):
    from disttrain.record import values

    calls = []
    monkeypatch.setattr(values, "measure", lambda *a: calls.append(a) or measure(*a))
    known, t = Known(), dt.randn(4, 3)
    first = known.get(t, t.array)
    assert known.get(t.view(3, 4), t.view(3, 4).array) == first
    assert known.get(t, t.array) == first
    assert len(calls) == 1
    t.mul_(2)
    assert known.get(t, t.array).hash != first.hash
    assert known.get(t.T, t.T.array).hash == digest(t.array.T).hash


def test_tensors_of_a_nest():
    a, b = dt.ones(1), dt.ones(2)
    assert tensors({"x": [a, 3], "y": (b, None)}) == [a, b]
    assert tensors(a) == [a]
    assert tensors("text") == []
