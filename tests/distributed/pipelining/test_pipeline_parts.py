"""Micro-batches cut and merged; models cut into stages."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.distributed as dist
from disttrain import core, nn
from disttrain.core.random import manual_seed
from disttrain.distributed import pipelining as pp
from disttrain.distributed import simulate
from disttrain.distributed.pipelining.microbatch import _CustomReducer
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def tensor(*shape: int) -> core.Tensor:
    return core.wrap(np.arange(float(np.prod(shape))).reshape(shape))


def test_arguments_are_cut_along_dimension_0() -> None:
    args, kwargs = pp.split_args_kwargs_into_chunks(
        (tensor(5, 2), 3, {"a": [tensor(5)]}), {"mask": tensor(5, 1), "flag": True}, 2
    )
    assert [a[0].shape[0] for a in args] == [3, 2] and [a[1] for a in args] == [3, 3]
    assert [a[2]["a"][0].shape[0] for a in args] == [3, 2]
    assert [k["mask"].shape[0] for k in kwargs] == [3, 2] and all(k["flag"] for k in kwargs)


def test_specs_say_how() -> None:
    args, kwargs = pp.split_args_kwargs_into_chunks(
        (tensor(2, 4), tensor(3)), {"a": tensor(4)}, 2,
        args_chunk_spec=(pp.TensorChunkSpec(1), None), kwargs_chunk_spec={"a": None},
    )  # fmt: skip
    assert [tuple(a[0].shape) for a in args] == [(2, 2)] * 2
    assert [tuple(a[1].shape) for a in args] == [(3,)] * 2
    assert [tuple(k["a"].shape) for k in kwargs] == [(4,)] * 2
    assert [s.split_dim for s in pp.TensorChunkSpec.from_tuple((0, 1))] == [0, 1]
    assert pp.TensorChunkSpec.from_dict({"x": 2})["x"].split_dim == 2


def test_merge_is_the_way_back() -> None:
    whole = (tensor(5, 2), {"b": tensor(5)})
    args, _ = pp.split_args_kwargs_into_chunks(whole, None, 3)
    back = pp.merge_chunks(args, None)
    np.testing.assert_array_equal(back[0].numpy(), whole[0].numpy())
    np.testing.assert_array_equal(back[1]["b"].numpy(), whole[1]["b"].numpy())
    total = pp.merge_chunks([tensor(2), tensor(2)], _CustomReducer(0.0, lambda a, b: a + b.sum()))
    assert float(total) == 2.0
    assert pp.merge_chunks([(tensor(1, 2), 7)] * 2, (pp.TensorChunkSpec(1), None))[1] == 7
    assert pp.merge_chunks([tensor()] * 2, None).shape == (2,)
    with pytest.raises(ConfigError, match="different values"):
        pp.merge_chunks([(1,), (2,)], (None,))
    with pytest.raises(ConfigError, match="same form"):
        pp.merge_chunks([(tensor(1),), (tensor(1), tensor(1))], None)


def test_a_leaf_gets_the_gradients_of_its_pieces() -> None:
    x = tensor(4, 1).requires_grad_()
    args, _ = pp.split_args_kwargs_into_chunks((x,), None, 2)
    (args[0][0].sum() + 3 * args[1][0].sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy().ravel(), [1, 1, 3, 3])


def test_even_costs() -> None:
    assert pp.split_by_cost([1, 1, 1, 1], 2) == [range(2), range(2, 4)]
    assert pp.split_by_cost([5, 1, 1, 1, 1, 1], 2) == [range(1), range(1, 6)]
    assert pp.split_by_cost([1, 2, 3, 4], 4) == [range(i, i + 1) for i in range(4)]
    with pytest.raises(ConfigError, match="at least one layer per stage"):
        pp.split_by_cost([1], 2)
    for seed in range(20):  # no other cut is better
        costs = np.random.default_rng(seed).integers(1, 9, 7).tolist()
        found = max(sum(costs[i] for i in r) for r in pp.split_by_cost(costs, 3))
        best = min(
            max(sum(costs[:i]), sum(costs[i:j]), sum(costs[j:]))
            for i in range(1, 6) for j in range(i + 1, 7)
        )  # fmt: skip
        assert found == best


def chain() -> nn.Sequential:
    manual_seed(0)
    inner = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])
    return nn.Sequential(nn.Linear(3, 3), inner, nn.Linear(3, 3))


def test_layers_keep_their_names() -> None:
    m = nn.Sequential(*[nn.Linear(3, 3) for _ in range(5)])
    parts = pp.split_layers(m, 2)
    names = [n for p in parts for n, _ in p.named_parameters()]
    assert names == [n for n, _ in m.named_parameters()]
    assert [len(p) for p in pp.split_layers(list(m), 2, costs=[9, 1, 1, 1, 1])] == [1, 4]
    with pytest.raises(ConfigError, match="2 costs for 5 layers"):
        pp.split_layers(m, 2, costs=[1, 1])


def test_a_chain_is_cut_where_one_says() -> None:
    m = chain()
    x = core.wrap(np.ones((2, 3), np.float32))
    pipe = pp.pipeline(m, (x,), split_spec={"1.1": pp.SplitPoint.BEGINNING, "1": pp.SplitPoint.END})
    assert pipe.num_stages == 3
    parts = [pipe.get_stage_module(i) for i in range(3)]
    names = [n for p in parts for n, _ in p.named_parameters()]
    assert names == [n for n, _ in m.named_parameters()]
    out = x
    for p in parts:
        out = p(out)
    np.testing.assert_array_equal(out.detach().numpy(), m(x).detach().numpy())
    assert "stage 2" in repr(pipe)

    def body():
        dist.init_process_group()
        stage = pipe.build_stage(2, "cpu")
        other = pp.build_stage(parts[0], 0, pipe, "cpu")
        dist.destroy_process_group()
        return stage.is_last, other.is_first

    assert simulate(body, 1).results == [(True, True)]


def test_what_cannot_be_cut_says_so() -> None:
    assert pp.pipe_split() is None
    with pytest.raises(ConfigError, match="'7', which the model does not have"):
        pp.pipeline(chain(), split_spec={"7": pp.SplitPoint.END})
    with pytest.raises(ConfigError, match="nothing says where to cut"):
        pp.pipeline(chain(), (core.wrap(np.ones((2, 3), np.float32)),))
    with pytest.raises(ConfigError, match="Invalid stage index 5"):
        pp.pipeline(chain(), split_spec={"1": pp.SplitPoint.END}).get_stage_module(5)
