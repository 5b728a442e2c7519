"""``torch.distributed.rpc``, ``.autograd`` and what is below them: the project's modules, and names
of PyTorch's inside that programs use all the same. Nothing is loaded before it is asked for."""

from __future__ import annotations

from ...publish import Shim
from ..distributed.sharding import Same

_HERE, _OURS, _EXTRA = "torch.distributed", "disttrain.distributed", __name__
_RPC = "disttrain.rpc"
_SOURCES = {
    "rpc": (_RPC, f"{_EXTRA}.names"),
    "rpc.api": (f"{_RPC}.api", _RPC, f"{_EXTRA}.names", f"{_EXTRA}.internal"),
    "rpc.backend_registry": (f"{_RPC}.backend_registry",),
    "rpc.constants": (f"{_RPC}.constants",),
    "rpc.functions": (f"{_RPC}.functions",),
    "rpc.internal": (f"{_EXTRA}.internal",),
    "rpc.options": (f"{_RPC}.options",),
    "rpc.rref_proxy": (f"{_RPC}.proxies",),
    "rpc.server_process_global_profiler": (f"{_EXTRA}.names",),
    "autograd": (f"{_RPC}.autograd",),
    "nn.api": (f"{_OURS}.nn",),
    "nn.api.remote_module": (f"{_OURS}.nn.remote_module",),
    "optim.optimizer": (f"{_RPC}.optim.optimizer",),
}


def modules() -> dict[str, Shim]:
    """The modules by name, parents before children."""
    return {f"{_HERE}.{name}": Same(f"{_HERE}.{name}", *of) for name, of in _SOURCES.items()}
