"""Names of PyTorch's remote calls that are not the project's own."""

from __future__ import annotations

import pytest

from disttrain.compat.torch import remote
from disttrain.compat.torch.remote import names


def test_what_a_gathering_keeps():
    states = names.AllGatherStates()
    assert states.gathered_objects == {}
    assert not states.proceed_signal.is_set()


def test_methods_are_made_by_name():
    class Reference(names.PyRRef):
        made = names.method_factory("__repr__", "How it prints.")

    assert Reference.made.__doc__ == "How it prints."
    assert names.new_method.__doc__.startswith("Whether the owner")
    with pytest.raises(TypeError):
        Reference.made(object())


def test_all_sources_of_a_module_are_listed():
    listed = dir(remote.modules()["torch.distributed.rpc"])
    assert {"AllGatherStates", "method_factory", "rpc_sync", "TensorPipeAgent"} <= {*listed}
