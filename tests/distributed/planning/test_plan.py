"""The arithmetic of a plan, and the command that prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from disttrain.distributed.planning import Profile, Strategy, Unit, plan, strategies
from disttrain.distributed.planning.plan import ALL, Precision
from disttrain.distributed.planning.profile import Weight
from disttrain.errors import ConfigError
from disttrain.sizes import parse_size, size

ROOT = Path(__file__).parents[3]


def unit(name, rows=64, saved=1000, **more):
    return Unit(name, (Weight(f"{name}.w", (rows, 8), 4),), saved, **more)  # 2048 bytes


PROFILE = Profile(8, (unit("", saved=500), unit("a"), unit("b")), 0, 2.0)
ONE, WHOLE = 2048, 3 * 2048


def need(strategy, **options):
    return plan(PROFILE, strategy, **options)


def test_nothing_is_sent_by_one_process():
    n = need(Strategy("single"))
    assert (n.parameters, n.gradients, n.optimizer) == (WHOLE, WHOLE, 2 * WHOLE)
    assert (n.activations, n.largest_unit, n.wire) == (2500, 0, 0)
    assert n.working == ONE  # the largest gradient, while it is put in its place
    assert n.total == 3 * WHOLE + max(WHOLE, 2500) + ONE
    assert n.fits(n.total) and not n.fits(n.total - 1)
    again = need(Strategy("single"), forwards=2)  # which adds to the gradients of the first
    assert again.total == 4 * WHOLE + 2500 + ONE
    assert n.fits(None) is None


@pytest.mark.parametrize(
    ("strategy", "kept", "sent"),
    [
        (Strategy("ddp", 4), (1, 1, 2), 2 * 0.75 * WHOLE),
        (Strategy("zero1", 1, 4, 1, ALL[:1]), (1, 1, 0.5), 3 * 0.75 * WHOLE),
        (Strategy("zero2", 1, 4, 1, ALL[:2]), (1, 0.25, 0.5), 2 * 0.75 * WHOLE),
        (Strategy("sgo", 1, 4, 1, ALL), (0.25, 0.25, 0.5), 2 * 0.75 * WHOLE),
        # The root's weights are gathered once, the other units' twice.
        (Strategy("fsdp", 1, 4, 1, ALL, True), (0.25, 0.25, 0.5), 0.75 * (3 * WHOLE - ONE)),
        (Strategy("hsdp", 2, 2, 1, ALL, True), (0.5, 0.5, 1), 0.5 * (4 * WHOLE - ONE)),
    ],
    ids=lambda v: v.name if isinstance(v, Strategy) else "",
)
def test_memory_and_wire(strategy, kept, sent):
    n = need(strategy)
    assert (n.parameters, n.gradients, n.optimizer) == tuple(k * WHOLE for k in kept)
    assert n.largest_unit == (ONE if "parameters" in strategy.sharded else 0)
    assert n.wire == round(sent)


def test_new_weights_travel_through_memory_of_their_own():
    zero1 = need(Strategy("zero1", 1, 4, 1, ALL[:1]))
    assert zero1.working == ONE + WHOLE  # all of them, where a message could be larger


def test_uneven_shards_count_as_the_largest():
    profile = Profile(1, (unit("", rows=10),))
    assert plan(profile, Strategy("fsdp", 1, 4, 1, ALL)).parameters == 3 * 32


def test_narrow_messages_and_gathered_units():
    n = need(Strategy("fsdp", 1, 4, 1, ALL, True), precision=Precision(gathered=2))
    assert n.largest_unit == ONE // 2 and n.parameters == WHOLE // 4
    assert n.wire == round(0.75 * ((2 * WHOLE - ONE) / 2 + WHOLE))


def test_checkpointing_keeps_inputs_and_one_unit():
    units = (unit("", saved=500), unit("a", inputs=100), unit("b", inputs=100))
    n = plan(Profile(8, units), Strategy("ddp", 2), checkpointing=True)
    assert n.activations == 500 + 200 + 1000


def test_several_forwards_of_a_step_gather_and_send_each_time():
    fsdp, ddp = Strategy("fsdp", 1, 4, 1, ALL, True), Strategy("ddp", 4)
    assert need(fsdp, forwards=2).wire == 2 * need(fsdp).wire
    assert need(ddp, forwards=2).wire == need(ddp).wire
    assert need(fsdp, forwards=2).total == need(fsdp).total and need(ddp, forwards=2).batch == 16


def test_tensor_parallelism_divides_layers_and_sends_results():
    weights = (
        Weight("up", (64, 8), 4, True, "colwise"),
        Weight("down", (8, 64), 4, True, "rowwise"),
    )
    block = Unit("a", weights, saved=1000, split=600, crossings=256)
    n = plan(Profile(8, (Unit("", ()), block)), Strategy("tp", tensor=2))
    assert n.parameters == 2 * 2048 // 2 and n.activations == 400 + 300
    assert n.wire == 2 * 256  # an all-reduce of 2 ranks sends its size: forward and backward


def test_strategies_divide_all_ranks():
    names = [s.name for s in strategies(8, tensor=2)]
    assert names == [
        "single", "ddp", "zero1", "zero2", "fsdp shard_grad_op", "fsdp", "hsdp", "fsdp x tp",
    ]  # fmt: skip
    for s in strategies(8, hosts=4, tensor=4)[1:]:
        assert s.data * s.tensor == 8
    assert [s.name for s in strategies(1)] == ["single"]
    assert "hsdp" not in [s.name for s in strategies(2)]
    for wrong in ({"world": 0}, {"world": 8, "hosts": 3}, {"world": 8, "tensor": 3}):
        with pytest.raises(ConfigError, match="given"):
            strategies(**wrong)


def test_sizes_are_read_and_written():
    assert [parse_size(t) for t in ("4GB", "1.5 MB", "2GiB", "17", "8k")] == [
        4 * 10**9, 1_500_000, 2 << 30, 17, 8000,
    ]  # fmt: skip
    assert [size(n) for n in (0, 999, 1500, 2 * 10**9, 3 * 10**12)] == [
        "0 B", "999 B", "1.5 KB", "2.0 GB", "3000.0 GB",
    ]  # fmt: skip
    for wrong in ("", "4 bananas", "-3MB", "GB"):
        with pytest.raises(ConfigError, match="needed is a size like 4GB"):
            parse_size(wrong)
