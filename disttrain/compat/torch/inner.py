"""Modules of PyTorch's own that libraries look into: ``torch._C``, ``torch._utils``,
``torch.overrides``, ``torch.fx``, ``torch.utils.weak`` and others. What they ask has mostly one
answer here: no graph is traced, no tensor is a wrapper."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

import disttrain as dt

from ...core.node import HookHandle
from ...core.tracer import Tracer
from ...data import loader
from ...nn.utils import fusion
from ..publish import Shim, lacking
from . import transforms
from .facade import get_device_module
from .top import spelled


def _nothing(*args: object, **kwargs: object) -> None:
    """For what has nothing to do here."""


def _never(*args: object, **kwargs: object) -> bool:
    return False


def _same(value: Any) -> Any:
    return value


def _absent(full: str) -> type:
    """A class that there are no objects of: programs ask whether theirs are."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(lacking(full, Shim(full.rpartition(".")[0])))

    name = full.rpartition(".")[2]
    return type(name, (), {"__init__": refuse, "__module__": full.rpartition(".")[0]})


def absents(module: str, names: str) -> dict[str, type]:
    return {name: _absent(f"{module}.{name}") for name in names.split()}


# --- torch.utils -------------------------------------------------------------------------------
class WeakIdRef(weakref.ref):
    """A weak reference that is equal to those of the same object, whatever ``==`` says of it."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        one, two = self(), other() if isinstance(other, weakref.ref) else None
        return self is other if one is None or two is None else one is two


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary by identity, which keeps no key alive."""

    def __init__(self, values: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: dict[Any, Any] = {}
        self.ref_type = ref_type
        self.update({} if values is None else values)

    def _ref(self, key: Any) -> Any:
        data = weakref.ref(self)

        def gone(ref: Any) -> None:
            held = data()
            if held is not None:
                held.data.pop(ref, None)

        return self.ref_type(key, gone)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._ref(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        return self.ref_type(key) in self.data

    def __iter__(self) -> Iterator[Any]:
        return iter([key for ref in list(self.data) if (key := ref()) is not None])

    def __len__(self) -> int:
        return sum(ref() is not None for ref in list(self.data))


class _Decorating(contextlib.ContextDecorator):
    """``_DecoratorContextManager``: a block that decorates functions, too."""

    def _recreate_cm(self) -> Any:
        return self.clone()

    def clone(self) -> Any:
        """A block of the same settings."""
        return copy.copy(self)


def _group_by_place_and_type(lists: list[list[Any]], with_indices: bool = False) -> dict:
    """Lists of tensors, one of the first in step with each of the others, as one such set of lists
    for each device and type; and the places where they stood."""
    groups: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    for i, row in enumerate(zip(*lists, strict=True)):
        found, places = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in lists], []))
        for column, value in zip(found, row, strict=True):
            column.append(value)
        places.append(i)
    return groups


def _utils() -> dict[str, Shim]:
    dispatch = "torch.utils._python_dispatch"
    weak = {"WeakIdRef": WeakIdRef, "WeakIdKeyDictionary": WeakIdKeyDictionary}
    return {
        "torch.utils.hooks": Shim("torch.utils.hooks").give(
            RemovableHandle=HookHandle, unserializable_hook=_same,
            warn_if_has_hooks=_nothing,
        ),
        "torch.utils.weak": Shim("torch.utils.weak").give(
            **weak, WeakTensorKeyDictionary=WeakIdKeyDictionary,
            WeakTensorRefKey=WeakIdRef, TensorWeakRef=weakref.ref, WeakRef=weakref.ref,
        ),
        "torch.utils._foreach_utils": Shim("torch.utils._foreach_utils").give(
            _group_tensors_by_device_and_dtype=_group_by_place_and_type,
            _get_foreach_kernels_supported_devices=lambda: ["cpu", "cuda"],
            _get_fused_kernels_supported_devices=lambda: ["cpu", "cuda"],
            _has_foreach_support=lambda tensors, device: True,
            _device_has_foreach_support=lambda device: True,
        ),
        "torch.utils._contextlib": Shim("torch.utils._contextlib").give(
            _DecoratorContextManager=_Decorating
        ),
        "torch.utils.flop_counter": Shim("torch.utils.flop_counter").give(
            **absents("torch.utils.flop_counter", "FlopCounterMode")
        ),
        dispatch: Shim(dispatch).give(
            is_traceable_wrapper_subclass=_never,
            is_traceable_wrapper_subclass_type=_never,
            **absents(dispatch, "TorchDispatchMode"),
        ),
    }  # fmt: skip


# --- torch._utils, torch._C, torch.overrides ----------------------------------------------------
def _flatten_dense_tensors(tensors: Any) -> dt.Tensor:
    return dt.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: dt.Tensor, tensors: Any) -> tuple:
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view_as(t) for part, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Any, size_limit: int) -> Iterator[list[dt.Tensor]]:
    """Lists of tensors of one type, each of at most so many bytes."""
    open_lists: dict[Any, list[dt.Tensor]] = {}
    for t in tensors:
        held = open_lists.setdefault(t.dtype, [])
        size = sum(h.numel() * h.element_size() for h in held) + t.numel() * t.element_size()
        if held and size > size_limit:
            yield held
            held = open_lists[t.dtype] = []
        held.append(t)
    yield from (held for held in open_lists.values() if held)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    if isinstance(device, int):
        return device
    where = None if device is None else dt.device(device)
    if where is not None and where.type == "cpu":
        if not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        return -1
    if where is not None and where.index is not None:
        return where.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index, but got: {device}")
    return dt.cuda.current_device()


class _ClassProperty:
    def __init__(self, read: Any) -> None:
        self.read = read.__func__ if isinstance(read, (classmethod, staticmethod)) else read

    def __get__(self, instance: object, owner: type) -> Any:
        return self.read(owner)


def _private() -> dict[str, Shim]:
    helpers = (_flatten_dense_tensors, _unflatten_dense_tensors, _take_tensors, _get_device_index)
    kind = lambda: "cuda" if dt.cuda.is_available() else None  # noqa: E731
    return {
        "torch._utils": Shim("torch._utils").give(
            **{f.__name__: f for f in helpers}, classproperty=_ClassProperty,
            _get_device_module=get_device_module, _get_available_device_type=kind,
            _element_size=lambda dtype: dtype.itemsize,
        ),
        "torch.__config__": Shim("torch.__config__").give(
            show=lambda: f"disttrain {dt.__version__}", parallel_info=lambda: ""
        ),
        "torch._tensor": Shim("torch._tensor").give(Tensor=dt.Tensor),
        "torch._subclasses": Shim("torch._subclasses"),
        "torch._subclasses.fake_tensor": Shim("torch._subclasses.fake_tensor").give(
            is_fake=_never, **absents("torch._subclasses.fake_tensor", "FakeTensor FakeTensorMode")
        ),
        "torch._subclasses.functional_tensor": Shim("torch._subclasses.functional_tensor").give(
            **absents("torch._subclasses.functional_tensor", "FunctionalTensor")
        ),
    }  # fmt: skip


def _parse_to(*args: Any, **kwargs: Any) -> tuple:
    """What ``to`` was asked for: device, type, whether to wait, and the order in memory."""
    device, kind = kwargs.get("device"), kwargs.get("dtype")
    for given in args:
        if isinstance(given, dt.Tensor):
            device, kind = given.device, given.dtype
        elif isinstance(given, dt.dtype):
            kind = given
        elif not isinstance(given, bool) and given is not None:
            device = given
    held = None if device is None else dt.device(device)
    flags = [a for a in args if isinstance(a, bool)]
    waits = kwargs.get("non_blocking", flags[0] if flags else False)
    return held, kind, waits, kwargs.get("memory_format")


_SWITCHES = (
    "_jit_set_texpr_fuser_enabled _jit_set_profiling_mode _jit_set_profiling_executor "
    "_jit_override_can_fuse_on_gpu _jit_override_can_fuse_on_cpu _jit_set_nvfuser_enabled "
    "_log_api_usage_once _set_grad_enabled"
)


def _c() -> dict[str, Shim]:
    return {
        "torch._C": Shim("torch._C").give(
            **dict.fromkeys(_SWITCHES.split(), _nothing), _get_tracing_state=_nothing,
            _are_functorch_transforms_active=_never, _TensorMeta=type(dt.Tensor),
            TensorBase=dt.Tensor, Generator=dt.Generator, device=dt.device, dtype=dt.dtype,
            _get_accelerator=lambda: dt.device("cuda" if dt.cuda.is_available() else "cpu"),
            DisableTorchFunctionSubclass=contextlib.nullcontext,
            DisableTorchFunction=contextlib.nullcontext,
            _disabled_torch_function_impl=lambda func, types, args=(), kwargs=None: func(
                *args, **(kwargs or {})
            ),
            **transforms.inner_names(),
        ),
        "torch._C._nn": Shim("torch._C._nn").give(
            _parse_to=_parse_to, gelu=dt.nn.functional.gelu,
            scaled_dot_product_attention=dt.nn.functional.scaled_dot_product_attention,
        ),
        "torch._C._functorch": Shim("torch._C._functorch").give(
            is_batchedtensor=lambda t: isinstance(t, Tracer)
        ),
    }  # fmt: skip


def _traced() -> dict[str, Shim]:
    """Graphs of PyTorch's tracers, of which there are none."""
    proxies = "torch.fx.experimental.proxy_tensor"
    return {
        "torch.fx.experimental": Shim("torch.fx.experimental"),
        proxies: Shim(proxies).give(get_proxy_mode=_nothing),
        "torch.onnx": Shim("torch.onnx").give(is_in_onnx_export=_never),
        "torch.overrides": Shim("torch.overrides").give(
            **{n: v for n, v in spelled.functional().items() if n.endswith("torch_function")},
            get_default_nowrap_functions=set,
            is_tensor_like=lambda value: isinstance(value, dt.Tensor)
            or hasattr(type(value), "__torch_function__"),
            **absents("torch.overrides", "TorchFunctionMode"),
        ),
    }  # fmt: skip


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Numbers to seed numpy's generator of a worker with."""
    return np.random.SeedSequence([base_seed, worker_id]).generate_state(4).tolist()


def _loading() -> dict[str, Shim]:
    worker = "torch.utils.data._utils.worker"
    return {
        worker: Shim(worker).give(
            _generate_state=_generate_state, get_worker_info=dt.data.get_worker_info,
            WorkerInfo=dt.data.WorkerInfo,
        ),
        "torch.utils.data.dataloader": Shim("torch.utils.data.dataloader")
        .take(dt.data)
        .give(
            _BaseDataLoaderIter=Iterator, _SingleProcessDataLoaderIter=loader._LocalIterator,
            _MultiProcessingDataLoaderIter=loader._WorkerIterator,
        ),
    }  # fmt: skip


FILE_READER = _absent("torch.PyTorchFileReader")  # (of archives, which ``torch.load`` reads itself)


def _layers() -> dict[str, Shim]:
    """Files of ``torch.nn.utils`` named like functions in it."""
    found: dict[str, Any] = {
        "weight_norm": ("weight_norm", "remove_weight_norm"),
        "spectral_norm": ("spectral_norm", "remove_spectral_norm"),
        "convert_parameters": ("parameters_to_vector", "vector_to_parameters"),
        "init": ("skip_init",),
    }
    return {
        **{
            f"torch.nn.utils.{file}": Shim(f"torch.nn.utils.{file}").take(
                dt.nn.utils, [n for n in names if hasattr(dt.nn.utils, n)]
            )
            for file, names in found.items()
        },
        "torch.nn.utils.fusion": Shim("torch.nn.utils.fusion").take(fusion),
        "torch.nn.common_types": Shim("torch.nn.common_types").give(
            **{
                f"_{kind}_{n}_t": Any
                for kind in ("size", "ratio")
                for n in ("1", "2", "3", "4", "5", "6", "any")
            }
        ),
    }


def modules() -> dict[str, Shim]:
    """By name."""
    return {**_utils(), **_private(), **_c(), **_traced(), **_layers(), **_loading()}
