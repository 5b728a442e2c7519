"""A module that another worker has: here is what calls its ``forward``."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...core.types.device import device as make_device
from ...errors import ConfigError, ModuleError, RRefError
from ...futures import Future
from ...nn import Module
from ...rpc import RRef, remote, rpc_async, rpc_sync
from ...rpc.api import _get_current_rpc_agent, _is_current_rpc_agent_set
from ...rpc.joining import device_map_of
from ..collectives.nested import map_tensors
from ..remote_device import _remote_device

__all__ = ["RemoteModule"]

_REMOTE_MODULE_PICKLED_ATTRIBUTES = (
    "on",
    "device",
    "is_device_map_set",
    "is_scriptable",
    "generated_methods",
    "module_rref",
)

# What any module has, and what is made again where a RemoteModule arrives.
_REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING = (
    "training",
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_modules",
    "_hooks",
    "_state_hooks",
    "forward_async",
    "forward",
)

_ONLY_BY_RPC = "RemoteModule in python pickler. RemoteModule can only be"
_SCRIPTED = (
    "Passing a script RemoteModule over RPC is not supported. Please create a RemoteModule in the "
    "sender, send the `module_rref` to the receiver, and create a new instance on the receiver end "
    "by passing this `module_rref`."
)

# Methods of a module that have no meaning for one that is elsewhere.
_REFUSED = (
    "register_buffer register_parameter add_module apply cuda ipu xpu cpu type float double half "
    "bfloat16 to register_backward_hook register_full_backward_hook register_forward_pre_hook "
    "register_full_backward_pre_hook register_forward_hook state_dict load_state_dict "
    "named_parameters buffers named_buffers children named_children modules named_modules "
    "requires_grad_ zero_grad share_memory extra_repr"
).split()


class _RemoteModule(Module):
    """A module whose parameters and ``forward`` are with another worker.

    ``remote_device``: "<worker>/<device>" or "rank:<rank>/<device>"; without a device, its CPU.
    ``module_cls(*args, **kwargs)`` makes the module there. ``forward`` takes what its ``forward``
    takes and waits for the result; ``forward_async`` returns a Future of it. In a context of
    distributed autograd the gradients of its parameters are left there.
    ``_module_interface_cls``: a class marked by ``torch.jit.interface``, for a module that counts
    as scripted (it runs as it is; like PyTorch's, such a RemoteModule cannot be sent).

    It may be sent with calls: the receiver's calls the same module. Only the attributes in
    ``_REMOTE_MODULE_PICKLED_ATTRIBUTES`` travel.
    """

    on: str | int
    device: str
    is_device_map_set: bool
    is_scriptable: bool
    generated_methods: tuple[Callable, ...]
    module_rref: RRef

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Module],
        args: tuple | None = None,
        kwargs: dict[str, Any] | None = None,
        _module_interface_cls: Any = None,
    ) -> None:
        super().__init__()
        self._prepare_init(remote_device, _module_interface_cls)
        made = (module_cls, args or (), kwargs or {}, self.device)
        if _module_interface_cls is not None:
            self.module_rref = rpc_sync(self.on, _create_module_with_interface, made)
        else:
            self.module_rref = remote(self.on, _create_module, made)
        self._install_generated_methods()
        self._check_attribute_picklability()

    def _prepare_init(self, remote_device: str, interface: type | None) -> None:
        if not _is_current_rpc_agent_set():
            raise ModuleError("RemoteModule only works in RPC: call rpc.init_rpc first")
        if interface is not None and not getattr(interface, "__torch_script_interface__", False):
            raise ConfigError(
                f"module_interface_cls {interface} must be a type object decorated by "
                "@torch.jit.interface"
            )
        place = _remote_device(remote_device)
        worker, rank = place.worker_name(), place.rank()
        on = worker if worker is not None else rank
        if on is None:
            raise ConfigError(
                f"RemoteModule: remote_device={remote_device!r} names no worker; give "
                "'<worker>/<device>' or 'rank:<rank>/<device>'"
            )
        self.on, self.device = on, str(place.device())
        agent = _get_current_rpc_agent()
        for kind in (RemoteModule, _RemoteModule):
            agent.reducers.setdefault(kind, reduce_remote_module)
        self.is_device_map_set = bool(device_map_of(agent, agent.worker(self.on)))
        self.is_scriptable = interface is not None
        self.generated_methods = _GENERATED

    def _install_generated_methods(self) -> None:
        for method in self.generated_methods:
            setattr(self, method.__name__, types.MethodType(method, self))

    def _check_attribute_picklability(self) -> None:
        known = {*_REMOTE_MODULE_PICKLED_ATTRIBUTES, *_REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING}
        for name in self.__dict__:
            if name not in known:
                raise ModuleError(
                    f"Attribute {name} must be either in ``_REMOTE_MODULE_PICKLED_ATTRIBUTES`` or "
                    "``_REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING``."
                )

    @staticmethod
    def init_from_module_rref(
        remote_device: str, module_rref: RRef, _module_interface_cls: Any = None
    ) -> RemoteModule:
        """A RemoteModule for the module that ``module_rref`` refers to."""
        made = object.__new__(RemoteModule)
        made._prepare_init(remote_device, _module_interface_cls)
        made.module_rref = module_rref
        made._install_generated_methods()
        made._check_attribute_picklability()
        return made

    def remote_parameters(self, recurse: bool = True) -> list[RRef]:
        """RRefs to the module's parameters, as ``DistributedOptimizer`` takes them; of its
        submodules, too, if ``recurse``."""
        found: list[RRef] = rpc_sync(self.on, _param_rrefs, (self.module_rref, recurse))
        return found

    def get_module_rref(self) -> RRef:
        """The RRef to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> _RemoteModule:
        """Put the module in training mode, there."""
        rpc_sync(self.on, _set_mode, (self.module_rref, mode))
        return self

    def eval(self) -> _RemoteModule:
        """Put the module in evaluation mode, there."""
        return self.train(False)

    def parameters(self, recurse: bool = True) -> Any:
        raise ConfigError(
            "Method ``parameters`` not supported for RemoteModule. "
            "Please use ``remote_parameters`` instead."
        )

    def __getstate__(self) -> Any:
        raise RRefError(f"Cannot pickle {_ONLY_BY_RPC} pickled when using RPC")

    def __setstate__(self, state: object) -> None:
        raise RRefError(f"Cannot unpickle {_ONLY_BY_RPC} unpickled when using RPC")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(on={self.on!r}, device={self.device!r})"


def _refuse(name: str) -> Callable[..., Any]:
    def refused(self: RemoteModule, *args: object, **kwargs: object) -> Any:
        raise ConfigError(f"Method ``{name}`` not supported for RemoteModule")

    refused.__name__ = name
    refused.__doc__ = "Not for a module that another worker has."
    return refused


for _name in _REFUSED:
    setattr(_RemoteModule, _name, _refuse(_name))


class RemoteModule(_RemoteModule):
    __doc__ = _RemoteModule.__doc__

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Module],
        args: tuple | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(remote_device, module_cls, args, kwargs)


# --- calling it


def forward_async(self: _RemoteModule, *args: object, **kwargs: object) -> Future:
    """A Future of what the module's ``forward`` returns."""
    sent = (self.module_rref, self.device, self.is_device_map_set, *args)
    return rpc_async(self.module_rref.owner(), _remote_forward, sent, kwargs)


def forward(self: _RemoteModule, *args: object, **kwargs: object) -> Any:
    """What the module's ``forward`` returns."""
    sent = (self.module_rref, self.device, self.is_device_map_set, *args)
    return rpc_sync(self.module_rref.owner(), _remote_forward, sent, kwargs)


_GENERATED = (forward_async, forward)


def _remote_forward(
    module_rref: RRef, device: str, is_device_map_set: bool, /, *args: Tensor, **kwargs: object
) -> Any:
    """At the owner. A module on another device gets its tensors there; without a device map they
    come back on the CPU."""
    module = module_rref.local_value()
    if make_device(device).type == "cpu":
        return module.forward(*args, **kwargs)
    args, kwargs = _moved((args, kwargs), device)
    out = module.forward(*args, **kwargs)
    return out if is_device_map_set else _moved(out, "cpu")


def _moved(value: object, device: str) -> Any:
    def move(t: Tensor) -> Any:
        return t.to(device)

    return map_tensors(move, value)


# --- what its worker does


def _create_module(module_cls: type, args: tuple, kwargs: dict, device: str) -> Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ConfigError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, "
            f"but it returns an instance of {type(module)}."
        )
    module.to(device)
    return module


def _create_module_with_interface(module_cls: type, args: tuple, kwargs: dict, device: str) -> RRef:
    return RRef(_create_module(module_cls, args, kwargs, device))


def _param_rrefs(module_rref: RRef, recurse: bool) -> list[RRef]:
    return [RRef(param) for param in module_rref.local_value().parameters(recurse)]


def _set_mode(module_rref: RRef, mode: bool) -> None:
    module_rref.local_value().train(mode)


# --- how it travels


def reduce_remote_module(module: _RemoteModule) -> tuple:
    """How RPC pickles one."""
    if module.is_scriptable:
        raise RRefError(_SCRIPTED)
    for name in module.__dict__:
        if name in _REMOTE_MODULE_PICKLED_ATTRIBUTES:
            continue
        if name not in _REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING:
            print(
                f"The new attribute ``{name}`` of RemoteModule is ignored during RPC pickling. To "
                "pickle this attribute, please add it to ``_REMOTE_MODULE_PICKLED_ATTRIBUTES``. "
                "Otherwise, please explicitly add it to "
                "``_REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING``.",
                file=sys.stderr,
            )
    own = module.__dict__
    sent = {k: own[k] for k in _REMOTE_MODULE_PICKLED_ATTRIBUTES}
    return _remote_module_receiver, tuple(sent.items())


def _remote_module_receiver(*attributes: tuple[str, Any]) -> RemoteModule:
    _get_current_rpc_agent().reducers.setdefault(RemoteModule, reduce_remote_module)
    module = object.__new__(RemoteModule)
    module.__dict__.update(attributes)
    module._install_generated_methods()
    return module
