"""Names of a model's state, with wrappers and without."""

from __future__ import annotations

from disttrain import nn
from disttrain.distributed.checkpoint.state.names import Names, prefixes


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1)))


def test_names_of_what_is_not_wrapped_stay():
    names = Names(model())
    for name in ("0.weight", "1.0.bias", "module.weight"):
        assert names.clean(name) == names.raw(name) == name


def test_steps_of_wrappers_are_left_out():
    names = Names(model())
    assert names.clean("1._checkpoint_wrapped_module.0.weight") == "1.0.weight"
    assert names.clean("_fsdp_wrapped_module.0.weight") == "0.weight"


def test_prefixes_of_submodules():
    m = model()
    assert prefixes(m, None) == ()
    assert prefixes(m, [m[1][0], m[0]]) == ("0.", "1.0.")
    assert prefixes(m, [nn.Linear(1, 1)]) == ()
