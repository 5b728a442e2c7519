"""Micro-batches cut and merged."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import core
from disttrain.distributed import pipelining as pp
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
