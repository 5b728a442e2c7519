"""Collectives inside vmap, jvp and vjp, in any order of these, equal one process."""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
import disttrain.distributed.nn.functional as dnn
from disttrain import core
from disttrain import distributed as dist
from disttrain.func import jvp, vjp, vmap
from support.cases.collective_cases import CASES

pytestmark = pytest.mark.simulated

ROWS = 2  # of a batch


def pushed(f, batch_at):
    """The tangents of f's results."""
    return lambda x: jvp(f, (x,), (x.cos(),))[1]


def pulled(f, batch_at):
    """What the results, squared, weigh."""

    def one(x):
        outs, pull = vjp(f, x)
        return like_results(pull(squares(outs))[0])

    return one


def batched(f, batch_at):
    return vmap(f, in_dims=batch_at)


def squares(outs):
    return [squares(o) for o in outs] if isinstance(outs, (list, tuple)) else outs * outs


def like_results(x):
    return [x]


TRANSFORMS = {"vmap": batched, "jvp": pushed, "vjp": pulled}


def nested(f, chain, batch_at):
    for name in chain:
        f = TRANSFORMS[name](f, batch_at)
    return f


def whole_input(chain, size):
    rng = np.random.default_rng(3)
    batches = (ROWS,) * chain.count("vmap")
    return rng.uniform(0.5, 1.5, (size, *batches, 2 * size, 3))


def on_rank(name, chain):
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    here = CASES[name][0]
    outs = nested(lambda x: list(here(x.sin(), size)), chain, 0)(
        core.wrap(whole_input(chain, size)[rank])
    )
    dist.destroy_process_group()
    return [o.numpy() for o in outs]


def in_one(name, chain, size):
    """The ranks' values are the first dimension; a batch is behind it."""
    alone = CASES[name][1]
    outs = nested(lambda x: [list(row) for row in alone(list(x.sin().unbind(0)))], chain, 1)(
        core.wrap(whole_input(chain, size))
    )
    if "vjp" in chain:  # what was pulled back is of all ranks, with the batches of later ones ahead
        ahead = chain[len(chain) - chain[::-1].index("vjp") :].count("vmap")
        return [[outs[0].movedim(ahead, 0)[r].numpy()] for r in range(size)]
    return [[o.numpy() for o in row] for row in outs]


def chains(name):
    rng = random.Random(name)
    found = [("vmap",), ("vjp", "jvp"), ("jvp", "vmap"), ("vjp", "vmap"), ("vmap", "vjp")]
    names = sorted(TRANSFORMS)
    found += [tuple(rng.choice(names) for _ in range(3)) for _ in range(2)]
    return rng.sample(found, 3)


PAIRS = [(name, chain) for name in CASES for chain in chains(name)]


@pytest.mark.parametrize(
    ("name", "chain"), PAIRS, ids=[f"{name} in {' '.join(chain)}" for name, chain in PAIRS]
)
def test_equals_one_process(name, chain):
    size = 2 + len(name) % 2
    if name == "ring":
        size = 2
    alone = in_one(name, chain, size)
    ranks = dist.simulate(on_rank, size, args=(name, chain)).results
    for mine, expected in zip(ranks, alone, strict=True):
        assert len(mine) == len(expected)
        for a, b in zip(mine, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_outputs_that_are_given_keep_values_and_no_tangents():
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        out, x = dt.zeros(2), dt.ones(4) * (rank + 1)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT):

            def reduced(v, op=op):
                return dnn.reduce_scatter(out, [v[:2], v[2:]], op=op)

            value, tangent = jvp(reduced, (x,), (x * 3,))
            assert out.tolist() == value.tolist() != tangent.tolist()
        number = dt.tensor(rank + 1.0, requires_grad=True)
        one = dnn._all_gather_base(dt.zeros(2), number)
        one.sum().backward()
        assert number.grad.item() == 2
        rows = vmap(lambda v: dnn._all_gather_base(dt.zeros(2), v))(dt.arange(3.0) + rank)
        dist.destroy_process_group()
        return one.tolist(), rows.tolist()

    for one, rows in dist.simulate(body, 2).results:
        assert one == [1.0, 2.0] and rows == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
