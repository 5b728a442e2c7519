"""assert_equivalent(): equal where training is, and the right name where it is not."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed import DistributedDataParallel
from disttrain.errors import ConfigError
from disttrain.testing import NotEquivalent, Plan, assert_equivalent, ddp, fsdp, single
from disttrain_launcher import launch


def batch(rows=8):
    dt.manual_seed(3)
    return dt.randn(rows, 6)


def mlp(*middle):
    dt.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), *middle, nn.Tanh(), nn.Linear(5, 3))


def difference(model, *plans, **named):
    with pytest.raises(NotEquivalent) as told:
        assert_equivalent(model, batch(), plans, **named)
    return told.value


class Scaled(nn.Module):
    """Divides by a buffer that each rank makes of its own rows."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 2)
        self.register_buffer("scale", dt.ones(1))

    def forward(self, x):
        self.scale.mul_(0.5).add_(0.5 * x.detach().abs().mean())
        return self.b(self.a(x) / self.scale)


class Uneven(nn.Module):
    """Rank 1 computes otherwise."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x):
        off = dt.distributed.get_rank() == 1
        return self.b(self.a(x) + (0.25 if off else 0.0))


def test_equal():
    model = mlp()
    assert_equivalent(model, batch(), [single, ddp(4), fsdp(2)], steps=3)
    assert model[0].weight.grad is None


@pytest.mark.parametrize("plan", [ddp(2), fsdp(2)], ids=str)
def test_equal_on_processes(plan):
    assert_equivalent(mlp, batch(), [plan], steps=2, launch=launch)


def test_a_loss_and_an_optimizer_of_ones_own():
    pairs = {"x": batch(), "y": batch()[:, :3]}
    adam = dt.optim.Adam

    def loss(model, part):
        return nn.functional.mse_loss(model(part["x"]), part["y"])

    assert_equivalent(mlp(), pairs, [ddp(4)], loss=loss, steps=2, rtol=1e-3,
                      optimizer=lambda parameters: adam(parameters, lr=0.01))  # fmt: skip


def test_batch_statistics():
    error = difference(mlp(nn.BatchNorm1d(5)), single, ddp(4))
    assert (error.plan.name, error.step, error.module) == ("ddp(4)", 1, "1")
    assert (error.first.what, error.first.name, error.first.rank) == ("gradient", "1.weight", 0)
    assert "buffer '1.running_mean', rank 0: max difference" in str(error)
    assert "it begins in module '1' (BatchNorm1d), the first whose output differs" in str(error)


def test_dropout_that_differs_between_ranks():
    error = difference(mlp(nn.Dropout(0.5)), ddp(2))
    assert error.module == "1" and "(Dropout)" in str(error)


def test_a_buffer_that_is_not_synchronised():
    error = difference(Scaled(), ddp(4))
    assert (error.first.what, error.first.name) == ("buffer", "scale")
    assert "it begins before module 'b' (Linear), whose input differs: on rank 0" in str(error)


def test_a_rank_that_computes_otherwise():
    error = difference(Uneven(), ddp(4))
    assert "it begins before module 'b' (Linear), whose input differs: on rank 1" in str(error)


def test_a_gradient_that_is_not_synchronised():
    def wrap(model):
        model._ddp_params_and_buffers_to_ignore = ["2.weight"]
        return DistributedDataParallel(model)

    error = difference(mlp(), ddp(2), Plan("mine", 2, wrap))
    assert (error.plan.name, error.module) == ("mine", "")
    first = error.first
    assert (first.what, first.name, first.rank) == ("gradient", "2.weight", 0)
    assert {d.name for d in error.differences} == {"2.weight"}
    assert f"at {list(first.index)}: {first.got:.7g}, with one process" in str(error)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ConfigError, match=r"8 rows given; ddp\(3\) needs a multiple of 3"):
        assert_equivalent(mlp(), batch(), [ddp(3)])
    with pytest.raises(ConfigError, match=r"tensors of \[4, 8\] rows"):
        assert_equivalent(mlp(), (batch(), batch(4)), [ddp(2)])


@pytest.mark.ranks(2)
def test_ranks_do_not_start_ranks():
    with pytest.raises(ConfigError, match="on one of several ranks"):
        assert_equivalent(mlp(), batch(), [ddp(2)])
