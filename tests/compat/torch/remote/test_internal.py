"""Values packed as calls do it, without workers: tensors apart, classes, names in profiles."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.remote import internal
from disttrain.compat.torch.remote.internal import PythonUDF, RPCExecMode, deserialize, serialize

pytestmark = pytest.mark.simulated


def add(a, b, scale=1):
    return (a + b) * scale


def test_a_call_comes_back_with_its_tensors():
    data, tensors = serialize(PythonUDF(add, (dt.ones(2), 3), {"scale": 2}))
    assert isinstance(data, bytes) and [t.tolist() for t in tensors] == [[1.0, 1.0]]
    func, args, kwargs = deserialize(data, tensors)
    assert func(*args, **kwargs).tolist() == [8.0, 8.0]


def test_plain_values_need_no_tensors():
    data, tensors = serialize({"a": [1, (2.5, None)], "b": "text"})
    assert tensors == [] and deserialize(data, []) == {"a": [1, (2.5, None)], "b": "text"}


def test_without_workers_nobody_registers_how_classes_are_pickled():
    with pytest.raises(RuntimeError):
        internal._internal_rpc_pickler._register_reducer(object, lambda obj: (object, ()))


@pytest.mark.parametrize("mode", RPCExecMode)
def test_names_of_calls_in_profiles(mode):
    name = internal._build_rpc_profiling_key(mode, "f", "a", "b")
    assert name == f"rpc_{mode.value}#f(a -> b)"


def test_what_a_call_raised_is_text_and_type():
    error = internal.RemoteException("text", ValueError)
    assert (
        error.msg == "text" and error.exception_type is ValueError and error == ("text", ValueError)
    )
