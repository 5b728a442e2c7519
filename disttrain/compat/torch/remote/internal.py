"""``torch.distributed.rpc.internal``: how values are packed, what calls are named in profiles."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from ....rpc.calls.current import current_agent, has_agent
from ....rpc.calls.packing import Packer


class RPCExecMode(Enum):
    """How a function is called."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class PythonUDF(NamedTuple):
    """A call: ``func(*args, **kwargs)``."""

    func: Any
    args: Any
    kwargs: Any


class RemoteException(NamedTuple):
    """What a call raised, as text and type."""

    msg: str
    exception_type: Any


class _InternalRPCPickler:
    """Packs values as calls do, for classes that say themselves how they are pickled."""

    def _register_reducer(self, obj_class: type, reducer: Any) -> None:
        current_agent().reducers.setdefault(obj_class, reducer)

    def serialize(self, obj: PythonUDF) -> tuple[bytes, list[Any]]:
        """``obj`` as bytes, and the tensors in it."""
        payload, tensors = _packer().pack(obj)
        return bytes(payload), tensors

    def deserialize(self, binary_data: bytes, tensor_table: list[Any]) -> Any:
        """What ``serialize`` was given."""
        return _packer().unpack(binary_data, tensor_table)


def _packer() -> Packer:
    return current_agent().packer if has_agent() else Packer()


_internal_rpc_pickler = _InternalRPCPickler()
serialize, deserialize = _internal_rpc_pickler.serialize, _internal_rpc_pickler.deserialize


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    """The name of a call in profiles."""
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"


__all__ = ["PythonUDF", "RPCExecMode", "RemoteException", "deserialize", "serialize"]
