"""What goes wrong in replays of steps with ``fully_shard``: as in eager steps, a dead rank and one
that does something else are named, and an error leaves the model usable."""

from __future__ import annotations

import os
import signal

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain.errors import CollectiveMismatch, LaunchError, PeerFailed
from disttrain_launcher import launch

BF16 = MixedPrecisionPolicy(param_dtype=dt.bfloat16)


def stepper(policy: MixedPrecisionPolicy | None = None) -> tuple:
    dist.init_process_group()
    dt.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 5))
    fully_shard(model[0], mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, dt.compile(step), dt.ones(4, 20), dt.zeros(4, dtype=dt.int64)


def weights(model: nn.Module) -> list[bytes]:
    return [p.full_tensor().detach().numpy().tobytes() for p in model.parameters()]


def killed_in_a_replay() -> str:
    _, run, x, y = stepper()
    for i in range(8):
        if i == 6 and dist.get_rank():
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            run(x, y)
        except PeerFailed as failed:
            return str(failed)
    return "nothing"


def test_a_killed_rank_is_told_to_those_that_replay():
    with pytest.raises(LaunchError, match="rank 1"):
        launch(killed_in_a_replay, 2)


def another_collective() -> str:
    """Rank 1 leaves the step for another collective, when both replay."""
    _, run, x, y = stepper()
    for _ in range(6):
        run(x, y)
    with pytest.raises(CollectiveMismatch) as caught:
        if dist.get_rank():
            dist.all_reduce(dt.ones(3))
        else:
            run(x, y)
    return str(caught.value)


def test_headers_are_compared_in_replays():
    assert all("do not belong together" in text for text in launch(another_collective, 2))


def raises_in_the_middle(policy: MixedPrecisionPolicy | None) -> tuple:
    """A label out of range is found by the replay, after the forward of all units."""
    model, run, x, y = stepper(policy)
    for _ in range(4):
        run(x, y)
    with pytest.raises(Exception, match="9") as caught:
        run(x, y + 9)
    run(x, y)
    run(x, y)
    return type(caught.value).__name__, weights(model), run.explain()


@pytest.mark.parametrize("policy", [None, BF16], ids=["float32", "bfloat16"])
def test_an_error_in_a_replay_leaves_the_model_usable(policy):
    (name, a, said), (other, b, _) = launch(lambda: raises_in_the_middle(policy), 2)
    assert name == other and a == b and " 0 eager" in said


def raises_inside_of_a_unit() -> tuple:
    """An index out of range is found inside of a call; the next step begins anew."""
    dist.init_process_group()
    dt.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    fully_shard(model[0])
    fully_shard(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    run, x = dt.compile(step), dt.tensor([0, 3, 6])
    for _ in range(4):
        run(x)
    with pytest.raises(Exception, match="8"):
        run(x + 2)
    run(x)
    return weights(model), run.explain()


def test_a_call_that_breaks_off_in_a_replay_has_ended():
    (a, said), (b, _) = launch(raises_inside_of_a_unit, 2)
    assert a == b and " 0 eager" in said
