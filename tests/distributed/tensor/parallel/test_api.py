"""Plans of tensor parallelism: names and patterns, what is said of those that fit nothing."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import DTensor, Replicate, Shard
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from disttrain.distributed.tensor.parallel.api import matches
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def net():
    def block():
        return nn.ModuleDict(
            {"w1": nn.Linear(4, 8), "w2": nn.Linear(8, 4), "norm": nn.LayerNorm(4)}
        )

    return nn.ModuleDict({"layers": nn.ModuleList([block(), block()]), "head": nn.Linear(4, 2)})


def names(model, path):
    known = {id(m): n for n, m in model.named_modules(remove_duplicate=False)}
    return sorted(known[id(m)] for _, m in matches(model, path))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", [""]),
        ("head", ["head"]),
        ("layers.1.w1", ["layers.1.w1"]),
        ("layers.*.w[12]", ["layers.0.w1", "layers.0.w2", "layers.1.w1", "layers.1.w2"]),
        ("layers.[!0].*", ["layers.1.norm", "layers.1.w1", "layers.1.w2"]),
        ("*", ["head", "layers"]),
        ("layers.*.w3", []),
        ("layers.0.w1.x", []),
        ("*.w1", []),  # a part for each level
    ],
)
def test_names_fit_part_by_part(path, found):
    assert names(net(), path) == found


def test_what_is_held_under_several_names_is_found_by_each():
    model = net()
    model["tied"] = model["head"]
    assert [m is model["head"] for _, m in matches(model, "tied")] == [True]

    def body():
        mesh = init_device_mesh("cpu", (2,))
        for plan in ("tied", "[th]*d"):
            model = net()
            model["tied"] = model["head"]
            parallelize_module(model, mesh, {plan: ColwiseParallel()})
            assert isinstance(model["head"].weight, DTensor)

    on_ranks(body)


def test_each_submodule_gets_its_style():
    def body():
        model = net()
        mesh = init_device_mesh("cpu", (2,))
        plan = {"layers.*.w1": ColwiseParallel(), "layers.*.w2": RowwiseParallel()}
        assert parallelize_module(model, mesh, plan) is model
        block = model["layers"][1]
        assert type(model["head"].weight) is nn.Parameter
        return (
            block["w1"].weight.placements,
            block["w2"].weight.placements,
            block["w2"].bias.placements,
        )

    assert on_ranks(body) == [((Shard(0),), (Shard(1),), (Replicate(),))] * 2


def test_values_are_those_of_one_rank_or_each_ranks_own():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        found = []
        for source in (0, 1, None):
            line = nn.Linear(1, 2, bias=False)
            line.weight.data.fill_(float(dist.get_rank()))
            parallelize_module(line, mesh, ColwiseParallel(), src_data_rank=source)
            found.append(line.weight.full_tensor().reshape(-1).tolist())
        return found

    assert on_ranks(body) == [[[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]] * 2


def test_what_cannot_be_is_refused_or_said():
    def body():
        two = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        mesh = two["dp"]
        with pytest.raises(ConfigError, match=r"a mesh of 2 dimensions, .* slice it, as in mesh"):
            parallelize_module(net(), two, {"head": ColwiseParallel()})
        with pytest.raises(TypeError, match="Expect Union"):
            parallelize_module(net(), mesh, [ColwiseParallel()])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = net()
            assert parallelize_module(model, mesh) is model
            parallelize_module(
                model, mesh, {"layers.*.w9": ColwiseParallel(), "head": ColwiseParallel()}
            )
        assert isinstance(model["head"].weight, DTensor)
        return [str(w.message) for w in said]

    first, second = on_ranks(body)[0]
    assert "No parallelize_plan is provided" in first
    assert "key 'layers.*.w9' could not be resolved" in second


class Attention(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.n_heads, self.q = heads, nn.Linear(4, 12)


@pytest.mark.parametrize(
    ("heads", "style", "told"),
    [
        (3, ColwiseParallel(), True),  # 6 features on a rank, 4 of a head
        (6, ColwiseParallel(), False),
        (5, ColwiseParallel(), False),  # no heads of these features
        (3, ColwiseParallel(use_local_output=False), False),
        (3, RowwiseParallel(), False),
    ],
)
def test_features_that_are_no_whole_number_of_heads_are_told(heads, style, told):
    def body():
        mesh = init_device_mesh("cpu", (2,))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            parallelize_module(Attention(heads), mesh, {"q": style})
        return [str(w.message) for w in said]

    found = on_ranks(body)[0]
    assert bool(found) is told
    assert not told or "3 heads of 4 features on 2 ranks: a rank gets 6 features" in found[0]


def test_a_parameter_that_is_shared_with_one_outside_of_the_plan_is_told():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "out": nn.Linear(4, 8, bias=False)})
        model["out"].weight = model["embed"].weight
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            parallelize_module(model, mesh, {"out": ColwiseParallel()})
        return [str(w.message) for w in said], type(model["embed"].weight) is nn.Parameter

    (message,), plain = on_ranks(body)[0]
    assert plain and "embed.weight was shared with a module of the plan" in message


def test_a_spread_model_computes_what_it_did():
    def body():
        dt.manual_seed(0)
        model, x = net(), dt.ones(3, 4)

        def forward():
            block = model["layers"][0]
            return block["w2"](block["w1"](x).relu())

        want = forward()
        parallelize_module(
            model,
            init_device_mesh("cpu", (2,)),
            {"layers.0.w1": ColwiseParallel(), "layers.0.w2": RowwiseParallel()},
        )
        return (forward() - want).abs().max().item() < 1e-6

    assert on_ranks(body) == [True, True]
