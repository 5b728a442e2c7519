"""Which modules policies choose: by size, class or function, alone and together."""

from __future__ import annotations

import functools

import pytest

from disttrain import nn
from disttrain.distributed.fsdp import policies
from disttrain.distributed.fsdp import wrap as wrapping
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


class Wrapped(nn.Module):
    """Stands for a unit: knows what it was given."""

    def __init__(self, module: nn.Module, **kwargs: object) -> None:
        super().__init__()
        self.module = module
        self.given = kwargs

    def forward(self, *args: object) -> object:
        return self.module(*args)


def nested() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, 5), nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    )


def apply(model: nn.Module, policy: object, ignored: tuple = (), **kwargs: object) -> list[str]:
    """Names of the wrapped modules below ``model`` (without the wrappers' own steps)."""
    params = [p for m in ignored for p in m.parameters()]
    wrapping.auto_wrap(model, policy, set(ignored), params, kwargs, Wrapped)
    return names(model)


def names(model: nn.Module) -> list[str]:
    return [
        name.replace(".module", "") for name, m in model.named_modules() if isinstance(m, Wrapped)
    ]


def by_size(n: int, **kwargs: object) -> object:
    return functools.partial(wrapping.size_based_auto_wrap_policy, min_num_params=n, **kwargs)


def test_size_counts_what_no_unit_below_has_taken() -> None:
    assert apply(nested(), by_size(40)) == ["2"]
    assert apply(nested(), by_size(30)) == ["0", "1", "2.0", "2.1"]
    assert apply(nested(), by_size(10**6)) == []


def test_size_neither_wraps_lists_nor_looks_below_attention() -> None:
    lists = nn.Sequential(nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)]))
    assert apply(lists, by_size(40)) == []
    assert apply(nn.Sequential(nn.ModuleList([nn.Linear(10, 10)])), by_size(40)) == ["0.0"]
    model = nn.Sequential(nn.Linear(10, 10), nn.MultiheadAttention(8, 1))
    assert apply(model, by_size(40)) == ["0"]
    leaf = by_size(40, force_leaf_modules={nn.Sequential})
    assert apply(nn.Sequential(nn.Sequential(nn.Linear(10, 10))), leaf) == []


def test_transformer_blocks_by_class_as_function_and_as_object() -> None:
    kinds = {nn.TransformerEncoderLayer}

    def build() -> nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 2)

    want = ["layers.0", "layers.1"]
    one = functools.partial(wrapping.transformer_auto_wrap_policy, transformer_layer_cls=kinds)
    assert apply(build(), one) == want
    assert apply(build(), wrapping.ModuleWrapPolicy(kinds)) == want
    either = functools.partial(
        wrapping._or_policy,
        policies=[wrapping.ModuleWrapPolicy(kinds), lambda module, recurse, **_: recurse],
    )
    assert apply(build(), either) == want
    assert "TransformerEncoderLayer" in repr(wrapping.ModuleWrapPolicy(kinds))


def test_lambda_and_custom_policies() -> None:
    model = nested()
    one = functools.partial(wrapping.lambda_auto_wrap_policy, lambda_fn=lambda m: m is model[2])
    assert apply(model, one) == ["2"]
    model = nested()
    inner, first = model[2], model[0]
    policy = wrapping.CustomPolicy(
        lambda m: {"forward_prefetch": True} if m is inner else m is first
    )
    assert apply(model, policy, forward_prefetch=False, device_id=None) == ["0", "2"]
    assert model[2].given == {"forward_prefetch": True, "device_id": None}
    assert model[0].given == {"forward_prefetch": False, "device_id": None}
    with pytest.raises(ConfigError, match="should return False/True or a kwarg dict"):
        apply(nested(), wrapping.CustomPolicy(lambda m: "yes"))


def chosen(policy, root, ignored=(), **kwargs):
    found = policy._run_policy(root, set(ignored), kwargs)
    return {name: found[m] for name, m in root.named_modules() if m in found}


def test_each_choice_has_arguments_of_its_own() -> None:
    root, kwargs = nested(), {"a": 1}
    found = policies.ModuleWrapPolicy([nn.Linear])._run_policy(root, {root[1]}, kwargs)
    assert set(found) == {root[0], root[2][0], root[2][1]}
    found[root[0]]["a"] = 2
    assert found[root[2][0]] == kwargs == {"a": 1}
    assert chosen(policies.CustomPolicy(lambda m: True), root, [root[2]], a=1) == {
        "": {"a": 1}, "0": {"a": 1}, "1": {"a": 1}, "2.0": {"a": 1}, "2.1": {"a": 1},
    }  # fmt: skip
    assert chosen(policies.CustomPolicy(lambda m: {}), root) == {}


def test_on_the_way_down_all_is_looked_into_and_on_the_way_up_it_is_chosen() -> None:
    line, seq = nn.Linear(2, 2), nn.Sequential()
    by_class = policies.ModuleWrapPolicy({nn.Linear})
    one_by_one = functools.partial(
        policies._wrap_module_cls_individually, module_classes=[nn.Linear]
    )
    for policy in (by_class, one_by_one):
        assert policy(seq, recurse=True, nonwrapped_numel=0)
        assert policy(line, recurse=False, nonwrapped_numel=0)
        assert not policy(seq, recurse=False, nonwrapped_numel=0)
    assert policies.always_wrap_policy(seq, False, 0)


def test_sizes_are_asked_below_leaves_and_above_lists_alone() -> None:
    ask = policies.size_based_auto_wrap_policy
    attention, modules = nn.MultiheadAttention(4, 1), nn.ModuleList()
    assert not ask(attention, True, 100, 50) and ask(attention, False, 100, 50)
    assert ask(modules, True, 100, 50) and not ask(modules, False, 100, 50)
    assert ask(nn.Linear(1, 1), False, 50, 50) and not ask(nn.Linear(1, 1), False, 49, 50)
    assert ask(modules, False, 100, 50, exclude_wrap_modules=set())
    assert ask(attention, True, 100, 50, force_leaf_modules=set())
