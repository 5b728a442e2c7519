"""Modules whose parameters and forward are with another worker."""

import pickle

import pytest

import disttrain as dt
from disttrain import nn, rpc
from disttrain.distributed.nn import RemoteModule
from disttrain.distributed.nn.remote_module import (
    _REMOTE_MODULE_PICKLED_ATTRIBUTES,
    _RemoteModule,
)
from disttrain.distributed.remote_device import _remote_device
from support.workers import simulate_workers

pytestmark = pytest.mark.simulated


class Scale(nn.Module):
    def __init__(self, factor, bias=0.0):
        super().__init__()
        self.factor = nn.Parameter(dt.tensor([factor]))
        self.inner = nn.Linear(2, 2)
        self.bias = bias

    def forward(self, x, *, times=1):
        if not self.training:
            return "evaluated"
        return (self.factor * x + self.bias) * times, {"n": times}


class NoModule:
    pass


def call(module, x):
    return module.forward_async(x).wait()[0], list(module.__dict__)


def is_training(rref):
    return rref.local_value().training


def of_rref(where, rref):
    return RemoteModule.init_from_module_rref(where, rref)


def body(rank):
    other, third = f"worker{(rank + 1) % 3}", f"worker{(rank + 2) % 3}"
    module = RemoteModule(f"{other}/cpu", Scale, (3.0,), {"bias": 1.0})
    out, told = module(dt.ones(1), times=2)
    assert (out.tolist(), told) == ([8.0], {"n": 2})
    assert module.forward_async(dt.ones(1)).wait()[0].tolist() == [4.0]
    assert len(module.remote_parameters()) == 3
    [own] = module.remote_parameters(recurse=False)
    assert own.owner_name() == other and own.to_here().tolist() == [3.0]
    assert module.get_module_rref() is module.module_rref
    by_rank = RemoteModule(f"rank:{(rank + 1) % 3}", nn.Linear, (2, 2))
    assert by_rank.on == (rank + 1) % 3 and by_rank(dt.ones(2)).shape == (2,)
    module.new = 1  # which does not travel
    out, names = rpc.rpc_sync(third, call, (module, dt.ones(1)))
    assert out.tolist() == [4.0]
    assert names == [*_REMOTE_MODULE_PICKLED_ATTRIBUTES, "forward_async", "forward"]
    again = rpc.rpc_sync(third, of_rref, (other, module.get_module_rref()))
    assert again(dt.ones(1))[0].tolist() == [4.0]
    both = nn.ModuleList([module, nn.Linear(2, 2)])
    both.eval()
    assert module(dt.ones(1)) == "evaluated" and not both[1].training
    assert module.train() is module
    assert rpc.rpc_sync(other, is_training, (module.get_module_rref(),))
    return True


def test_a_module_of_another_worker():
    assert simulate_workers(3, body, 4) == [True] * 3


def refusals(rank):
    other = f"worker{1 - rank}"
    module = RemoteModule(other, nn.Linear, (2, 2))
    for refused in ("state_dict", "zero_grad", "buffers", "to", "register_forward_hook", "apply"):
        with pytest.raises(
            ValueError, match=f"Method ``{refused}`` not supported for RemoteModule"
        ):
            getattr(module, refused)()
    with pytest.raises(ValueError, match="use ``remote_parameters`` instead"):
        module.parameters()
    with pytest.raises(RuntimeError, match="RemoteModule can only be pickled when using RPC"):
        pickle.dumps(module)
    with pytest.raises(ValueError, match=r"returns an instance of <class nn\.Module>"):
        RemoteModule(other, NoModule).forward()
    with pytest.raises(ValueError, match="names no worker"):
        RemoteModule("cpu", nn.Linear, (2, 2))
    with pytest.raises(ValueError, match=r"torch\.jit\.interface"):
        _RemoteModule(other, nn.Linear, (2, 2), _module_interface_cls=NoModule)
    scripted = _RemoteModule(other, nn.Linear, (2, 2), _module_interface_cls=Interface)
    assert scripted.is_scriptable and scripted(dt.ones(2)).shape == (2,)
    with pytest.raises(RuntimeError, match="Passing a script RemoteModule over RPC is not"):
        rpc.rpc_sync(other, call, (scripted, dt.ones(2)))
    assert repr(scripted) == f"_RemoteModule(on='{other}', device='cpu')"
    return True


class Interface:
    __torch_script_interface__ = True


def test_what_a_remote_module_refuses():
    assert simulate_workers(2, refusals, 5) == [True] * 2
    with pytest.raises(AttributeError, match="only works in RPC"):
        RemoteModule("worker1", nn.Linear, (2, 2))


def test_remote_devices():
    told = [_remote_device(text) for text in ("a/cpu", "a", "rank:3/cuda:1", "cpu", "b:1")]
    assert [repr(t) for t in told] == ["a/cpu", "a/cpu", "rank:3/cuda:1", "cpu", "b:1/cpu"]
    assert told[2].rank() == 3 and told[2].worker_name() is None
    assert _remote_device("a") == told[0] and len({told[0], told[1]}) == 1
    for wrong in ("a/b/c", "/cpu", "a:b:c/cpu"):
        with pytest.raises(ValueError, match="Could not parse remote_device"):
            _remote_device(wrong)
    with pytest.raises(TypeError, match="Invalid type for remote_device"):
        _remote_device(3)
