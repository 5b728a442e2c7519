"""Samplers: distributions, seeds, shapes, the in-place forms."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain.core import backward
from disttrain.core import random as source
from disttrain.core.types import dtypes
from disttrain.errors import AutogradError, ConfigError, DTypeError, ShapeError
from disttrain.ops.functions import random, sampling
from disttrain.ops.functions.creation import create
from disttrain.ops.functions.creation.data import tensor
from disttrain_launcher import launch


@pytest.fixture(autouse=True)
def _seeded():
    with context.attach(context.Rank()):
        source.manual_seed(7)
        yield


def test_same_seed_same_numbers():
    a = random.randn(5).array
    source.manual_seed(7)
    np.testing.assert_array_equal(random.randn(5).array, a)
    assert source.initial_seed() == 7


def test_state_goes_back_in_the_middle():
    random.rand(3)
    random.randint(100, (3,), dtype=dtypes.int32)  # leaves half a draw in the generator
    state = source.get_rng_state()
    a = random.randint(100, (5,), dtype=dtypes.int32).array
    source.set_rng_state(state)
    np.testing.assert_array_equal(random.randint(100, (5,), dtype=dtypes.int32).array, a)
    with pytest.raises(ConfigError, match="get_state"):
        source.set_rng_state(create.zeros(3, dtype=dtypes.uint8))


def test_fork_rng_leaves_no_trace():
    with source.fork_rng():
        inner = random.rand(3).array
    np.testing.assert_array_equal(random.rand(3).array, inner)


def test_generators_are_independent():
    g, h = source.Generator().manual_seed(1), source.Generator().manual_seed(1)
    before = source.get_rng_state().array
    np.testing.assert_array_equal(
        random.rand(4, generator=g).array, random.rand(4, generator=h).array
    )
    np.testing.assert_array_equal(source.get_rng_state().array, before)


def test_ranks_have_their_own_generator():
    a = random.rand(3).array
    with context.attach(context.Rank()):
        source.manual_seed(7)
        np.testing.assert_array_equal(random.rand(3).array, a)


@pytest.mark.parametrize("kind", [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16])
def test_uniform_and_normal_moments(kind):
    u = random.rand(20000, dtype=kind).array.astype(np.float64)
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.02
    z = random.randn(20000, dtype=kind).array.astype(np.float64)
    assert abs(z.mean()) < 0.05 and abs(z.std() - 1) < 0.05


def test_normal_with_tensors():
    mean, std = tensor([0.0, 100.0]), tensor([1.0, 0.0])
    assert random.normal(mean, std).array[1] == 100
    assert random.normal(3.0, 0.0, size=(2,)).tolist() == [3.0, 3.0]
    with pytest.raises(ConfigError, match="negative"):
        random.normal(0.0, -1.0, size=(2,))


def test_randint_bounds_and_types():
    x = random.randint(-3, 3, (1000,))
    assert x.dtype is dtypes.int64 and set(x.tolist()) == set(range(-3, 3))
    assert random.randint(0, 2, (4,), dtype=dtypes.float32).dtype is dtypes.float32
    with pytest.raises(ConfigError, match="below high"):
        random.randint(3, 3, (1,))
    with pytest.raises(ConfigError, match="do not fit"):
        random.randint(0, 300, (1,), dtype=dtypes.uint8)
    with pytest.raises(DTypeError, match="floating"):
        random.rand(2, dtype=dtypes.int64)


def test_randperm_is_a_permutation():
    assert sorted(random.randperm(20).tolist()) == list(range(20))


def test_bernoulli():
    p = tensor([0.0, 0.3, 1.0]).array
    draws = np.stack([random.bernoulli(tensor(p)).array for _ in range(2000)])
    assert np.abs(draws.mean(0) - p).max() < 0.05
    assert random.bernoulli(create.zeros(100), 1.0).array.all()
    with pytest.raises(ConfigError, match=r"\[0, 1\]"):
        random.bernoulli(tensor([1.5]))


@pytest.mark.parametrize("rows", [1, 3])
def test_multinomial_frequencies(rows):
    w = tensor([[1.0, 0.0, 3.0, 0.0]] * rows)
    x = random.multinomial(w, 4000, replacement=True).array
    assert x.shape == (rows, 4000) and set(np.unique(x)) == {0, 2}
    assert np.abs((x == 2).mean(1) - 0.75).max() < 0.05


def test_multinomial_without_replacement():
    w = tensor([5.0, 0.0, 1.0, 1.0])
    first = [random.multinomial(w, 3).tolist() for _ in range(300)]
    assert all(sorted(x) == [0, 2, 3] for x in first)
    assert abs(np.mean([x[0] == 0 for x in first]) - 5 / 7) < 0.1
    with pytest.raises(ConfigError, match="without replacement"):
        random.multinomial(w, 4)
    with pytest.raises(ShapeError, match="weights"):
        random.multinomial(create.zeros(2, 2, 2), 1)


@pytest.mark.parametrize("shape", [(7,), (100, 100)])
def test_dropout_scales_and_its_gradient_uses_the_same_mask(shape):
    x = random.rand(*shape, dtype=dtypes.float32).requires_grad_()
    y = random.dropout(x, 0.25)
    kept = y.array != 0
    np.testing.assert_allclose(y.array[kept], x.array[kept] / 0.75, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.array, np.where(kept, np.float32(1 / 0.75), 0), rtol=1e-6)
    if kept.size > 100:
        assert abs(kept.mean() - 0.75) < 0.03


def test_dropout_ends():
    x = random.rand(5)
    assert random.dropout(x, 0.5, training=False) is x
    assert not random.dropout(x, 1.0).array.any()
    with pytest.raises(ConfigError, match="probability"):
        random.dropout(x, 1.5)


def test_in_place_forms():
    x = create.zeros(2000)
    assert sampling.normal_(x, 3.0, 2.0) is x
    assert abs(x.array.mean() - 3) < 0.3 and abs(x.array.std() - 2) < 0.2
    sampling.uniform_(x, -2, -1)
    assert -2 <= x.array.min() and x.array.max() <= -1
    sampling.exponential_(x, 2.0)
    assert abs(x.array.mean() - 0.5) < 0.1
    sampling.bernoulli_(x, 0.25)
    assert abs(x.array.mean() - 0.25) < 0.05 and set(np.unique(x.array)) == {0, 1}
    n = create.zeros(1000, dtype=dtypes.int64)
    sampling.random_(n, 2, 5)
    assert set(n.tolist()) == {2, 3, 4}
    sampling.random_(n, 2)
    assert set(n.tolist()) == {0, 1}


def test_in_place_forms_count_as_writes():
    x = create.ones(3).requires_grad_()
    with pytest.raises(AutogradError, match="leaf"):
        sampling.normal_(x)
    w = create.ones(3)
    y = x * w
    sampling.normal_(w)
    with pytest.raises(AutogradError, match="in-place"):
        backward(y.sum())
    z = x * 1.0
    sampling.uniform_(z)
    backward(z.sum())
    assert x.grad.tolist() == [0, 0, 0]


def test_in_place_forms_pass_over_meta_tensors():
    x = create.zeros(3, device="meta")
    assert sampling.normal_(x) is x and random.rand(2, 3, device="meta").is_meta


def test_forked_processes_start_where_their_parent_was(tmp_path):
    """A program that draws nothing before it forks: its children draw the same, each run anew."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nimport disttrain as dt\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        print(dt.rand(1).item(), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "print(dt.rand(1).item())\n"
    )
    root = Path(__file__).parents[3]
    seen = []
    for _ in range(2):
        run = [sys.executable, str(program)]
        env = {**os.environ, "PYTHONPATH": str(root)}
        seen.append(subprocess.check_output(run, env=env, text=True, timeout=50).split())
    assert [len(set(each)) for each in seen] == [1, 1] and seen[0] != seen[1]


def test_launched_ranks_start_from_seeds_of_their_own():
    assert len(set(launch(lambda: dt.rand(1).item(), 3))) == 3


@pytest.mark.parametrize(
    "draw",
    [lambda p: dt.normal(p, p), lambda p: dt.normal(0.0, p), dt.bernoulli, dt.poisson],
    ids=["mean and std", "std", "bernoulli", "poisson"],
)
def test_what_numbers_are_drawn_by_gets_a_gradient_of_zero(draw):
    p = dt.tensor([0.5, 0.25], requires_grad=True)
    dt.manual_seed(3)
    out = draw(p)
    dt.manual_seed(3)
    assert out.tolist() == draw(p.detach()).tolist()
    out.sum().backward()
    assert p.grad.tolist() == [0.0, 0.0]
    assert dt.func.jvp(draw, (p.detach(),), (dt.ones(2),))[1].tolist() == [0.0, 0.0]
