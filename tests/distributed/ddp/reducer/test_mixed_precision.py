"""DDP's own mixed precision: low in forward, backward and on the way, full outside."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.core.random import manual_seed
from disttrain.distributed.ddp.reducer.mixed_precision import MixedPrecision

pytestmark = pytest.mark.simulated

DDP = dist.DistributedDataParallel


class Net(nn.Module):
    """Notes the types that it computes with."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.again = nn.Linear(4, 8), nn.Linear(8, 2), again
        self.register_buffer("scale", core.wrap(np.ones(1, np.float32)))
        self.seen: list = []

    def forward(self, x):
        self.seen = [x.dtype, self.a.weight.dtype, self.scale.dtype]
        h = checkpoint(self.a, x, use_reentrant=False) if self.again else self.a(x)
        return self.b(h.relu()) * self.scale.to(x.dtype)


def body(types: MixedPrecision, again: bool = False, micro: int = 1, **options) -> tuple:
    dist.init_process_group()
    manual_seed(0)
    inner = Net(again)
    m = DDP(inner, mixed_precision=types, **options)
    optimizer = optim.SGD(m.parameters(), lr=0.5)
    x = np.random.default_rng(dist.get_rank()).standard_normal((6, 4)).astype(np.float32)
    outside = set()
    for _ in range(3):
        optimizer.zero_grad()
        for k in range(micro):
            m.require_backward_grad_sync = k == micro - 1
            (m(core.wrap(x)).float() ** 2).mean().backward()
            outside |= {p.dtype for p in m.parameters()} | {p.grad.dtype for p in m.parameters()}
        optimizer.step()
    with dt.no_grad():
        m(core.wrap(x))
    outside |= {p.dtype for p in m.parameters()}
    wire = {flat.dtype.name for flat in m.reducer.flats}
    dist.destroy_process_group()
    return [p.numpy().copy() for p in inner.state_dict().values()], inner.seen, outside, wire


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("micro", [1, 2])
def test_low_inside_full_outside(again: bool, micro: int) -> None:
    types = MixedPrecision(param_dtype=dt.bfloat16, buffer_dtype=dt.bfloat16)
    results = dist.simulate(lambda: body(types, again, micro), 2).results
    full = dist.simulate(lambda: body(MixedPrecision(), again, micro), 2).results[0][0]
    for values, seen, outside, wire in results:
        assert seen == [dt.bfloat16] * 3
        assert outside == {dt.float32} and wire == {"bfloat16"}
        for ours, first, exact in zip(values, results[0][0], full, strict=True):
            np.testing.assert_array_equal(ours, first)
            near = np.asarray(ours, np.float32)
            np.testing.assert_allclose(near, exact.astype(np.float32), atol=0.05, rtol=0.05)


def test_only_the_reduction_is_low() -> None:
    types = MixedPrecision(reduce_dtype=dt.float16)
    for values, seen, outside, wire in dist.simulate(lambda: body(types), 2).results:
        assert seen == [dt.float32] * 3
        assert outside == {dt.float32} and wire == {"float16"}
        assert all(v.dtype == np.float32 for v in values)


def test_reduced_in_full_precision() -> None:
    types = MixedPrecision(param_dtype=dt.float16, reduce_dtype=dt.float32)
    options = {"find_unused_parameters": True}
    for _, seen, outside, wire in dist.simulate(lambda: body(types, **options), 2).results:
        assert seen == [dt.float16, dt.float16, dt.float32]
        assert outside == {dt.float32} and wire == {"float32"}


def test_an_error_in_forward_leaves_full_parameters() -> None:
    def run() -> str:
        dist.init_process_group()
        m = DDP(Net(), mixed_precision=MixedPrecision(param_dtype=dt.bfloat16))
        with pytest.raises(RuntimeError):
            m(core.wrap(np.ones((2, 5), np.float32)))
        return str(m.module.a.weight.dtype)

    assert dist.simulate(run, 1).results == [str(dt.float32)]
