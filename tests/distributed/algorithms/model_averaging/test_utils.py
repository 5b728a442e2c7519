"""What is averaged, how it travels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.algorithms.model_averaging import utils
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_averages_keep_memory_types_and_what_has_no_gradient() -> None:
    def body() -> tuple:
        rank = dist.get_rank()
        ps = [nn.Parameter(t) for t in (
            dt.full((2, 2), 1.0 + rank), dt.full((3,), 2.0 * rank).double(),
            dt.full((1,), 4.0 * rank), dt.full((4,), 3.0 + rank).bfloat16(),
        )]  # fmt: skip
        before = [p.array for p in ps]
        for p in (*ps[:2], ps[3]):
            p.grad = dt.zeros_like(p)
        version = ps[0]._version
        utils.average_parameters_or_parameter_groups([{"params": ps[:3]}, {"params": ps[3:]}], None)
        same = all(p.array is a for p, a in zip(ps, before, strict=True))
        return same, ps[0]._version > version, [p.float().mean().item() for p in ps]

    for rank, (same, noticed, means) in enumerate(on_ranks(body)):
        assert same and noticed
        assert means == [1.5, 1.0, 4.0 * rank, 3.5]


def test_large_models_travel_in_several_messages(monkeypatch) -> None:
    monkeypatch.setattr(utils, "CHUNK_BYTES", 64)

    def body() -> list:
        ps = [nn.Parameter(dt.full((n,), float(dist.get_rank()))) for n in (5, 9, 30, 1, 1)]
        utils.average_parameters(ps, None)
        return [p.tolist() for p in ps]

    for values in on_ranks(body):
        assert all(set(np.ravel(v)) == {0.5} for v in values)


def test_only_parameters_and_groups_are_averaged() -> None:
    with pytest.raises(NotImplementedError, match="not supported"):
        utils.get_params_to_average([1.0])
