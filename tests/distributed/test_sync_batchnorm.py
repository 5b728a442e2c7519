"""SyncBatchNorm on ranks equals BatchNorm in one process on the whole batch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.errors import ShapeError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=6 * 8, depth=2 * 4 * 3)

FEATURES, STEPS = 3, 3
SIZES = {1: [6], 2: [5, 1], 3: [4, 0, 2], 4: [1, 3, 0, 2]}  # samples per rank; some have none
SETTINGS = {
    "default": {},
    "cumulative": {"momentum": None},
    "no statistics": {"track_running_stats": False},
    "not affine": {"affine": False},
    "no bias": {"bias": False},
}


def batch(step: int, dims: int, total: int) -> np.ndarray:
    rng = np.random.default_rng(step)
    return rng.standard_normal((total, FEATURES, *(2, 4)[: dims - 2])) * 3 + 5


def model(settings: dict) -> nn.Module:
    norm = nn.BatchNorm2d(FEATURES, **settings).double()
    if norm.weight is not None:
        norm.weight.data.copy_(dt.tensor([0.5, 1.5, -1.0]).double())
    return norm


def train(norm: nn.Module, dims: int, part: slice, total: int) -> dict[str, np.ndarray]:
    """Steps of training, with gradients of a loss over ``part`` of every batch."""
    out: dict[str, np.ndarray] = {}
    for step in range(STEPS):
        x = core.wrap(batch(step, dims, total)[part]).requires_grad_()
        y = norm(x)
        place = core.wrap(np.cos(batch(step + 50, dims, total)[part]))
        ((y * place).sin().sum() + (y * y * place).sum()).backward()
        out[f"y{step}"], out[f"gx{step}"] = y.detach().numpy(), x.grad.numpy()
    for name, p in norm.named_parameters():
        out[f"+{name}"] = p.grad.numpy()
    for name, b in norm.named_buffers():
        out[f"={name}"] = b.numpy().copy()
    norm.eval()
    out["eval"] = norm(core.wrap(batch(9, dims, total)[part])).detach().numpy()
    return out


def parts(size: int) -> list[slice]:
    ends = np.cumsum([0, *SIZES[size]])
    return [slice(a, b) for a, b in pairwise(ends)]


def on_rank(dims: int, settings: dict) -> dict[str, np.ndarray]:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    norm = nn.SyncBatchNorm.convert_sync_batchnorm(model(settings))
    assert isinstance(norm, nn.SyncBatchNorm)
    out = train(norm, dims, parts(size)[rank], sum(SIZES[size]))
    dist.destroy_process_group()
    return out


def assert_like_one(results: list[dict], dims: int, settings: dict) -> None:
    size = len(results)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[dims]
    norm = model(settings)
    norm.__class__ = kind
    whole = train(norm, dims, slice(None), sum(SIZES[size]))
    for name, value in whole.items():
        ours = [r[name] for r in results]
        if name[0] == "=":
            for each in ours:
                SUMS.equal(each, value)
        elif name[0] == "+":
            SUMS.equal(sum(ours), value)
        elif name != "eval" or settings.get("track_running_stats", True):
            SUMS.equal(np.concatenate(ours), value)


@pytest.mark.simulated
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_equals_one_process(settings: dict, size: int) -> None:
    results = dist.simulate(on_rank, size, args=(4, settings)).results
    assert_like_one(results, 4, settings)


@pytest.mark.simulated
@pytest.mark.parametrize("dims", [2, 3])
def test_of_other_shapes(dims: int) -> None:
    assert_like_one(dist.simulate(on_rank, 3, args=(dims, {})).results, dims, {})


def test_on_real_processes() -> None:
    assert_like_one(launch(lambda: on_rank(4, {}), 2), 4, {})


@pytest.mark.simulated
def test_second_derivatives() -> None:
    def penalty(norm: nn.Module, x: dt.Tensor) -> np.ndarray:
        x.requires_grad_()
        (g,) = dt.autograd.grad((norm(x) ** 3).sum(), x, create_graph=True)
        (g * g).sum().backward()
        return x.grad.numpy()

    def body() -> np.ndarray:
        dist.init_process_group()
        rank = dist.get_rank()
        norm = nn.SyncBatchNorm(FEATURES).double()
        out = penalty(norm, core.wrap(batch(0, 2, 6)[parts(2)[rank]]))
        dist.destroy_process_group()
        return out

    whole = penalty(nn.BatchNorm1d(FEATURES).double(), core.wrap(batch(0, 2, 6)))
    ours = np.concatenate(dist.simulate(body, 2).results)
    SUMS.equal(ours, whole)


@pytest.mark.simulated
def test_a_cnn_in_ddp_equals_one_process() -> None:
    def net() -> nn.Module:
        dt.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(FEATURES, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)
        ).double()

    def losses(m: nn.Module, part: slice) -> list[np.ndarray]:
        optimizer = dt.optim.SGD(m.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            (m(core.wrap(batch(step, 4, 6)[part])) ** 2).mean().backward()
            optimizer.step()
        return [p.detach().numpy().copy() for p in m.parameters()]

    def body() -> list[np.ndarray]:
        dist.init_process_group()
        rank = dist.get_rank()
        m = nn.SyncBatchNorm.convert_sync_batchnorm(net())
        out = losses(dist.DistributedDataParallel(m), slice(3 * rank, 3 * rank + 3))
        dist.destroy_process_group()
        return out

    alone = losses(net(), slice(None))
    for ours in dist.simulate(body, 2).results:
        for a, b in zip(ours, alone, strict=True):
            SUMS.equal(a, b)


@pytest.mark.simulated
def test_one_value_in_all_is_refused_on_every_rank() -> None:
    def body() -> bool:
        dist.init_process_group()
        rank = dist.get_rank()
        try:
            nn.SyncBatchNorm(FEATURES)(dt.ones(1 - rank, FEATURES))
        except ShapeError as error:
            said = "on all 2 ranks together" in str(error)
        dist.destroy_process_group()
        return said

    assert dist.simulate(body, 2).results == [True, True]
