"""What one rank does wrong before, after or beside its stage is known on all, and the group lives
on; values beside tensors arrive as they were sent."""

from __future__ import annotations

import weakref
from contextlib import nullcontext

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.grad_mode import no_grad
from disttrain.distributed import pipelining as pp
from disttrain.errors import AutogradError, CollectiveMismatch, ConfigError, PeerFailed

pytestmark = pytest.mark.simulated


class Calls(nn.Module):
    """A stage that is a function."""

    def __init__(self, fn) -> None:
        super().__init__()
        self.layer, self.fn = nn.Linear(4, 4), fn

    def forward(self, *args):
        return self.fn(self.layer, *args)


def ones(*shape: int):
    return core.wrap(np.ones(shape, np.float32))


def through(layer, x):
    return layer(x)


def schedule(first=through, last=through, micro: int = 3, loss=F.mse_loss, **options):
    rank = dist.get_rank()
    stage = pp.PipelineStage(Calls((first, last)[rank]), rank, 2)
    return pp.Schedule1F1B(stage, micro, loss, **options)


def step(made, x=None, y=None, **options):
    given = () if dist.get_rank() else (ones(6, 4) if x is None else x,)
    return made.step(*given, target=ones(6, 4) if y is None else y, **options)


def small_batch(made) -> None:
    step(made, x=ones(2, 4))


def small_target(made) -> None:
    step(made, y=ones(2, 4))


def no_list(made) -> None:
    step(made, losses=() if dist.get_rank() else [])


def no_grad_on_one_rank(made) -> None:
    with nullcontext() if dist.get_rank() else no_grad():
        step(made)


WRONG = {small_batch: (0, ConfigError), small_target: (None, ConfigError),
         no_list: (1, TypeError), no_grad_on_one_rank: (0, AutogradError)}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda f: f.__name__)
def test_a_wrong_batch_on_one_rank_is_an_error_on_all(wrong) -> None:
    def program() -> type:
        dist.init_process_group()
        made = schedule()
        with pytest.raises((ConfigError, TypeError, AutogradError, PeerFailed)) as caught:
            wrong(made)
        step(made)  # the group can be used again
        dist.destroy_process_group()
        return caught.type

    where, kind = WRONG[wrong]
    found = dist.simulate(program, 2).results
    assert found == [kind if where in (None, r) else PeerFailed for r in range(2)]


def test_results_that_do_not_fit_together_are_an_error_on_all() -> None:
    def program() -> str:
        dist.init_process_group()
        count = iter(range(9))
        made = schedule(last=lambda layer, x: (layer(x), next(count)),
                        loss=lambda out, y: F.mse_loss(out[0], y))  # fmt: skip
        with pytest.raises((ConfigError, PeerFailed)) as caught:
            step(made)
        assert step(made, return_outputs=False) is None
        return str(caught.value)

    for text in dist.simulate(program, 2).results:
        assert "the micro-batches gave different values (0, ...)" in text


def test_another_groups_error_in_a_stage_ends_the_step_everywhere() -> None:
    def program() -> tuple:
        dist.init_process_group()
        rank = dist.get_rank()
        pipes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        across = dist.new_group([0, 2])
        wrong = [True]

        def beside(layer, x):
            if wrong[0] and rank in (0, 2):
                dist.all_reduce(ones(3 + rank), group=across)
            return layer(x)

        stage = pp.PipelineStage(Calls(beside), rank % 2, 2, group=pipes[rank // 2])
        made = pp.Schedule1F1B(stage, 3, F.mse_loss)
        given = () if rank % 2 else (ones(6, 4),)
        with pytest.raises((CollectiveMismatch, PeerFailed)) as caught:
            made.step(*given, target=ones(6, 4))
        wrong[0] = False
        made.step(*given, target=ones(6, 4))
        return caught.type, "called operations that do not fit" in str(caught.value)

    kinds = [CollectiveMismatch, PeerFailed] * 2
    assert dist.simulate(program, 4).results == [(k, True) for k in kinds]


def test_values_beside_tensors_are_those_of_this_step() -> None:
    changing: set = {0}
    values = [True, 1, 1.0, {1}, {2}, (1,), [1], None, changing, changing, changing]

    def program() -> list:
        dist.init_process_group()
        seen: list = []
        sent = iter(values)

        def first(layer, x):
            value = next(sent)
            if value is changing:
                changing.add(len(changing))
            return layer(x), value

        def last(layer, x, value):
            seen.append(repr(value))
            if isinstance(value, set):
                value.add(99)
            return layer(x)

        made = schedule(first, last, micro=1)
        for _ in values:
            step(made)
        return seen

    shown = [repr(v) for v in values[:-3]] + ["{0, 1}", "{0, 1, 2}", "{0, 1, 2, 3}"]
    assert dist.simulate(program, 2).results == [[], shown]


def test_what_was_sent_is_let_go_before_the_step_ends() -> None:
    def program() -> int:
        dist.init_process_group()
        kept: list = []
        most = [0]

        def first(layer, x):
            out = layer(x)
            kept.append(weakref.ref(out.array))
            most[0] = max(most[0], sum(ref() is not None for ref in kept))
            return out

        step(schedule(first, micro=12), x=ones(12, 4), y=ones(12, 4))
        return most[0]

    assert dist.simulate(program, 2).results[0] <= 4


@pytest.mark.parametrize("given", [3.0, (1, 2)])
def test_a_loss_that_is_no_tensor_is_told_on_all(given) -> None:
    def program() -> str:
        dist.init_process_group()
        with pytest.raises((ConfigError, PeerFailed)) as caught:
            step(schedule(loss=lambda out, y: given))
        return str(caught.value)

    for text in dist.simulate(program, 2).results:
        assert f"loss_fn gave a {type(given).__name__}; needed is a Tensor" in text
