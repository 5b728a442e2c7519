"""Work with other ranks in captured steps: when it begins, when it is waited for; eager bits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.compile import capture
from disttrain.compile.passes import optimize, schedule, scheduling
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain.errors import DisttrainError, LaunchError, PeerFailed
from disttrain_launcher import launch
from support.simulated import on_ranks

STEPS = 8


def bits(values: Any) -> list[bytes]:
    return [t.detach().numpy().tobytes() for t in values]


def layers(width: int = 96) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(3)))


def names(graph: Any) -> list[str]:
    return [ins.prim.name for ins in graph.instructions]


def on_two(fn: Callable[[], Any]) -> list:
    """``fn`` on two simulated ranks."""
    return on_ranks(fn)


# --- graphs -------------------------------------------------------------------------------------
def product_meanwhile(x: Any) -> Any:
    total = x * 2
    dist.all_reduce(total)
    other = x @ x
    return other @ x + total


@pytest.mark.simulated
def test_it_begins_when_its_operand_is_there_and_is_waited_for_when_it_is_used():
    def body() -> list[str]:
        return names(schedule(capture(product_meanwhile)(dt.ones(128, 128)).graph))

    for found in on_two(body):
        assert found == ["mul", "all_reduce_begin", "matmul", "matmul", "all_reduce_wait", "add"]


@pytest.mark.simulated
def test_where_nothing_is_done_meanwhile_it_stays_one_piece():
    def used_at_once(x: Any) -> Any:
        total = x * 2
        dist.all_reduce(total)
        return total + (x @ x)

    def body() -> tuple:
        graph = capture(used_at_once)(dt.ones(128, 128)).graph
        small = capture(product_meanwhile)(dt.ones(4, 4)).graph
        return names(schedule(graph)), names(schedule(small))

    for large, small in on_two(body):
        assert "all_reduce_begin" in large  # beside the product, whatever line it stands on
        assert small == ["mul", "all_reduce", "matmul", "matmul", "add"]


@pytest.mark.simulated
def test_it_is_waited_for_before_the_world_can_see_what_comes_after_it():
    def body() -> list[str]:
        weight = dt.ones(128, 128)

        def written(x: Any) -> Any:
            total = x * 2
            dist.all_reduce(total)
            y = x @ x
            weight.copy_(y)
            return total

        return names(schedule(capture(written)(dt.ones(128, 128)).graph))

    for found in on_two(body):
        assert found[:3] == ["mul", "all_reduce_begin", "matmul"]
        assert found[3] == "all_reduce_wait"  # and then what writes


@pytest.mark.simulated
def test_memory_from_outside_is_reduced_where_the_program_does():
    def body() -> list[str]:
        outside = dt.ones(128, 128)

        def fn(x: Any) -> Any:
            dist.all_reduce(outside)
            dist.all_reduce(x)
            return x @ x

        return names(schedule(capture(fn)(dt.ones(128, 128)).graph))

    assert on_two(body)[0][:2] == ["all_reduce", "all_reduce"]


@pytest.mark.simulated
def test_work_begins_in_the_order_of_the_program():
    def fn(x: Any) -> Any:
        late = x @ x @ x
        early = x + 1
        dist.all_reduce(late)
        dist.all_reduce(early, dist.ReduceOp.MAX)
        other = x @ x.T
        return other @ other, late, early

    def body() -> list[str]:
        graph = schedule(capture(fn)(dt.ones(128, 128)).graph)
        told = [
            str(ins.params["effect"].of.leaves)
            for ins in graph.instructions
            if ins.prim.name == "all_reduce_begin"
        ]
        return [*told, *scheduling.told(graph)]

    first, second, *said = on_two(body)[0]
    assert "SUM" in first and "MAX" in second
    assert len(said) == 2 and all("begins at" in line for line in said)


# --- bits ---------------------------------------------------------------------------------------
def reduced_by_hand(model: Any, opt: Any, x: Any, group: Any) -> Any:
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    for p in reversed(list(model.parameters())):
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    opt.step()
    return loss.detach()


def gathered(model: Any, opt: Any, x: Any, group: Any) -> Any:
    opt.zero_grad()
    h = model(x)
    world = dist.get_world_size()
    everyone = dt.empty(world * h.shape[0], h.shape[1])
    dist.all_gather_into_tensor(everyone, h.detach().clone())
    h.square().mean().backward()
    part = dt.empty(h.shape[0], h.shape[1])
    dist.reduce_scatter_tensor(part, everyone * 0.5)
    more = x @ x.T
    root = h.detach() + 1
    dist.broadcast(root, 1)
    opt.step()
    return part.sum() + more.sum() + root.sum()


def two_groups(model: Any, opt: Any, x: Any, group: Any) -> Any:
    opt.zero_grad()
    h = model(x)
    a, b = h.detach() * 2, h.detach() + 1
    dist.all_reduce(a, group=group)
    dist.all_reduce(b)
    h.square().mean().backward()
    dist.all_reduce(a, dist.ReduceOp.MAX, group=group)
    opt.step()
    return a.sum() + b.sum()


def trained(step: Callable, compiled: bool, uneven: bool) -> tuple:
    dt.manual_seed(1)
    model, group = layers(), dist.new_group(list(range(dist.get_world_size())))
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    def body(x: Any) -> Any:
        return step(model, opt, x, group)

    run: Any = dt.compile(body, dynamic=False) if compiled else body
    rng, found = np.random.default_rng(dist.get_rank()), []
    for i in range(STEPS):
        rows = 64 + (8 if uneven and dist.get_rank() and i % 3 == 2 else 0)
        x = dt.tensor(rng.standard_normal((rows, 96)).astype(np.float32))
        found.append(bits([run(x), *model.parameters()]))
    return found, run.explain() if compiled else ""


def compared(step: Callable, uneven: bool = False) -> tuple[bool, str]:
    dist.init_process_group()
    expected, _ = trained(step, False, uneven)
    found, said = trained(step, True, uneven)
    dist.destroy_process_group()
    return found == expected, said


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("step", [reduced_by_hand, gathered, two_groups])
def test_bits_of_eager_steps(step, ranks):
    for equal, said in launch(lambda: compared(step), ranks):
        assert equal and " 0 eager" in said and "is waited for at" in said, said


def test_a_rank_may_capture_while_another_replays_what_was_moved():
    for equal, said in launch(lambda: compared(reduced_by_hand, uneven=True), 2):
        assert equal and " 0 eager" in said, said


# --- fully_shard --------------------------------------------------------------------------------
def sharded(compiled: bool) -> tuple:
    dt.manual_seed(1)
    model = layers()
    policy = MixedPrecisionPolicy(param_dtype=dt.float16)  # (full weights are no shards then)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    def body(x: Any) -> Any:
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    run: Any = dt.compile(body, dynamic=False) if compiled else body
    rng, found = np.random.default_rng(dist.get_rank()), []
    for i in range(STEPS):
        rows = 8 + (dist.get_rank() and i == 5)  # one rank captures then
        loss = run(dt.tensor(rng.standard_normal((rows, 96)).astype(np.float32)))
        found.append(bits([loss, *(p.to_local() for p in model.parameters())]))
    return found, run.explain() if compiled else ""


def test_the_next_units_weights_are_gathered_beside_the_present_one():
    def body() -> tuple[bool, str]:
        dist.init_process_group()
        expected, _ = sharded(False)
        found, said = sharded(True)
        dist.destroy_process_group()
        return found == expected, said

    for equal, said in launch(body, 2):
        assert equal and " 0 eager" in said, said
        ahead = [line for line in said.splitlines() if "begins ahead" in line]
        assert "<1>" in ahead[0] and "<2>" in ahead[1]


# --- faults -------------------------------------------------------------------------------------
def raises_meanwhile() -> list:
    """An index out of range is found while a sum is under way: the others get their sum."""
    dist.init_process_group()

    def body(x: Any, at: Any) -> Any:
        total = x * 2
        dist.all_reduce(total)
        y = x @ x
        return y[at], total

    run, x, found = dt.compile(body), dt.ones(128, 128), list[Any]()
    for i in range(6):
        at = dt.tensor([500 if i == 4 and dist.get_rank() else 3])
        try:
            found.append(run(x, at)[1].sum().item())
        except (IndexError, DisttrainError) as error:
            found.append(type(error).__name__)
    dist.destroy_process_group()
    return found


def test_a_rank_that_raises_meanwhile_gives_the_others_what_they_wait_for():
    first, second = launch(raises_meanwhile, 2)
    assert first == [first[0]] * 6
    assert second[4] != first[4] and second[:4] + second[5:] == first[:5]


def killed_meanwhile() -> str:
    dist.init_process_group()

    def body(x: Any) -> Any:
        return product_meanwhile(x)

    run, x = dt.compile(body), dt.ones(128, 128)
    for i in range(8):
        if i == 5 and dist.get_rank():
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            run(x)
        except PeerFailed as failed:
            return str(failed)
    return "nothing"


def test_a_killed_rank_is_told_where_its_part_is_waited_for():
    with pytest.raises(LaunchError, match="rank 1"):
        launch(killed_meanwhile, 2)


def test_graphs_without_such_work_stay_as_they_are():
    graph = capture(lambda x: (x * 2).relu())(dt.ones(3)).graph
    assert schedule(graph) is graph
    assert "begin" not in str(optimize(graph))
