"""Writes to distributed arrays: what is written to stays where it lies."""

import pytest

import disttrain as dt
from disttrain.distributed.tensor import Partial, Replicate, Shard
from disttrain.errors import PlacementError
from support.meshes import numbers, run_on, spread

pytestmark = pytest.mark.simulated

WRITES = {
    "add": lambda t, o: t.add_(o, alpha=2.0),
    "multiply by a number": lambda t, o: t.mul_(3.0),
    "fill": lambda t, o: t.fill_(7.0),
    "copy": lambda t, o: t.copy_(o),
    "masked": lambda t, o: t.masked_fill_(o > 0, 5.0),
    "clamp": lambda t, o: t.clamp_(-0.5, 0.5),
    "one to the other": lambda t, o: t.addcmul_(o, o),
    "to itself": lambda t, o: t.add_(t),
    "a row": lambda t, o: t.add_(o[1]),
    "a sum": lambda t, o: t.sub_(o.sum(0)),
}
PLACES = (Shard(0), Shard(1), Replicate())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("there", PLACES, ids=str)
def test_as_one_process_writes(write, there):
    target, other = numbers(4, 6), numbers(4, 6, seed=1)
    wanted = target.clone()
    write(wanted, other)

    def rank(mesh):
        gots = []
        for beside in PLACES:
            mine = spread(target.clone(), mesh, [there])
            given = mine.to_local() if mine.placements[0] == Shard(0) else None
            write(mine, spread(other, mesh, [beside]))
            assert mine.placements == (there,)
            if given is not None:
                assert (given == mine.to_local()).all()
            gots.append(dt.allclose(mine.full_tensor(), wanted))
        return gots

    assert run_on((2,), rank) == [[True] * len(PLACES)] * 2


def test_a_number_counts_once_in_a_partial_sum():
    def rank(mesh):
        parts = spread(dt.ones(3), mesh, [Partial()])
        parts.add_(4.0)
        return parts.placements[0].is_partial(), parts.full_tensor().tolist()

    assert run_on((2,), rank) == [(True, [5.0] * 3)] * 2


def test_a_plain_tensor_does_not_take_a_distributed_one():
    def rank(mesh):
        with pytest.raises(PlacementError, match="plain Tensor"):
            dt.zeros(4).copy_(spread(dt.ones(4), mesh, [Shard(0)]))

    run_on((2,), rank)


def test_steps_of_optimizers():
    def trained(weight):
        w = dt.nn.Parameter(weight)
        optimizer = dt.optim.Adam([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        return w

    wanted = trained(numbers(5, 3)).detach()

    def rank(mesh):
        w = trained(spread(numbers(5, 3), mesh, [Shard(0)]))
        return dt.allclose(w.full_tensor(), wanted), w.placements

    assert run_on((2,), rank) == [(True, (Shard(0),))] * 2
