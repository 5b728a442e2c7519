"""``DTensor``: a Tensor whose array is distributed; made from parts or wholes, taken apart again.

A DTensor is used like any Tensor: operations, gradients and transforms see the whole. This file
adds what is about the parts. Three primitives cross between the worlds: ``from_local``,
``to_local`` and ``redistribute``.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends.device.memory import memory_of
from ...backends.null import NullArray
from ...core import Algebra, no_grad
from ...core.attributes import give_attributes, own_attributes
from ...core.classes import joined
from ...core.effects import not_repeated
from ...core.gate import gate
from ...core.tensor import Size, Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import at
from ...errors import PlacementError
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...ops.declare import declare_apart
from ..mesh import DeviceMesh, current_mesh
from . import movement
from .array import DistArray, KindNode, LeavingNode, without_partial
from .placements import (
    Placement,
    Replicate,
    Shard,
    local_offset,
    local_shape,
    normalized,
)
from .specs import NamedSharding


class TensorMeta(NamedTuple):
    """Shape, stride (in elements) and type of the whole."""

    shape: Size
    stride: tuple[int, ...]
    dtype: Any


class DTensorSpec(NamedTuple):
    """How a DTensor lies."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.mesh

    @property
    def shape(self) -> Size:
        return self.tensor_meta.shape

    @property
    def ndim(self) -> int:
        return len(self.tensor_meta.shape)


class DTensor(Tensor):
    """A tensor that lies on a ``DeviceMesh``: ``placements`` say what each rank holds."""

    node_class = KindNode
    array: DistArray

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.array.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self.array.placements

    @property
    def device(self) -> Any:
        return at(*self.array.place)

    @property
    def is_meta(self) -> bool:
        return not self.array.has_data

    @property
    def _local_tensor(self) -> Tensor:
        return local_of(self)

    @property
    def _spec(self) -> DTensorSpec:
        a = self.array
        strides = tuple(s // a.itemsize for s in a.strides)
        return DTensorSpec(a.mesh, a.placements, TensorMeta(self.shape, strides, self.dtype))

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """The DTensor whose part on this rank is ``local_tensor``. Differentiable.

        Without ``shape`` the parts along a sharded dimension must be equal. ``run_check``: compare
        shapes over the ranks and make what is replicated equal to the first rank's.
        """
        return from_local(
            local_tensor, device_mesh, placements, run_check, shape, stride, grad_placements
        )

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's part, sharing its memory. Differentiable: its gradient is taken to lie as
        ``grad_placements`` (default: as this DTensor, and whole where that is partial)."""
        spread = self.array
        grads = without_partial(spread.placements)
        if grad_placements is not None:
            grads = normalized(grad_placements, spread.ndim, spread.mesh.ndim, "to_local")
        out = gate(
            _to_local, (self,), {"mesh": spread.mesh, "placements": grads, "shape": spread.shape}
        )
        if out._st is None:  # one memory: writes to either are seen by both
            out._st = st = self.storage_cell()
            out._gen = st.gen
        return out

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole, on every rank. Differentiable."""
        whole = self.redistribute(placements=[Replicate()] * self.array.mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | NamedSharding | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: object = None,
        backward_dtype: object = None,
    ) -> DTensor:
        """The same tensor under other ``placements``. Every rank of the mesh calls it.
        Differentiable: the gradient comes back under the placements that this one has."""
        spread = self.array
        if isinstance(device_mesh, NamedSharding):
            sharding = device_mesh
            device_mesh, placements = sharding.mesh, sharding.placements
        mesh = device_mesh or spread.mesh
        if mesh != spread.mesh:
            raise PlacementError(
                f"redistribute: a DTensor on {spread.mesh} cannot move to {mesh}; take "
                "full_tensor() and distribute_tensor() it over the other mesh"
            )
        if placements is None:
            raise PlacementError("redistribute: placements is needed to redistribute")
        wanted = normalized(placements, spread.ndim, mesh.ndim, "redistribute")
        out: Tensor = self
        if forward_dtype is not None:
            out = Algebra.cast(self, dtypes.as_dtype(forward_dtype).np)
        back = without_partial(spread.placements)
        return gate(_redistribute, (out,), {"placements": wanted, "back": back})

    def __create_chunk_list__(self) -> list:
        a = self.array
        place = a.mesh.get_coordinate()
        at = local_offset(a.shape, a.mesh.ranks.shape, place, a.placements)
        return [(at, tuple(a.local.shape))]

    def __reduce_ex__(self, protocol: object) -> Any:
        a = self.array
        state = {
            "local": wrap(a.local), "mesh": a.mesh, "placements": a.placements, "shape": a.shape,
            "parameter": isinstance(self, Parameter),
            "requires_grad": self.requires_grad and self.is_leaf, "own": own_attributes(self),
        }  # fmt: skip
        return copyreg.__newobj__, (DTensor,), state  # type: ignore[attr-defined]

    def __setstate__(self, state: dict) -> None:
        array = state["local"].array
        self.array = DistArray(array, state["mesh"], state["placements"], state["shape"])
        if state["parameter"]:
            self.__class__ = joined(Parameter, DTensor)
        self.requires_grad_(state["requires_grad"])
        give_attributes(self, state["own"])

    def __repr__(self, *, tensor_contents: object = None) -> str:
        prefix = "Parameter containing:\n" if isinstance(self, Parameter) else ""
        node = self.graph_node()
        made = "" if node is None or self.is_leaf else f", grad_fn=<{node.name()}>"
        leaf = ", requires_grad=True" if self.is_leaf and node is not None else ""
        return (
            f"{prefix}DTensor(local_tensor={wrap(self.array.local)}, "
            f"device_mesh={self.device_mesh}, placements={self.placements}{made}{leaf})"
        )


DistArray.tensor_class = DTensor


def made(local: object, mesh: DeviceMesh, placements: tuple, shape: tuple) -> DTensor:
    """The DTensor over an array, unchecked."""
    return wrap(DistArray(local, mesh, placements, shape))  # type: ignore[return-value]


def local_of(t: Tensor) -> Tensor:
    """The plain Tensor that this rank computes with: a DTensor's part (the same memory, outside of
    the graph), any other tensor itself."""
    if not isinstance(t, DTensor):
        return t
    not_repeated("it takes the part of a DTensor that lies here outside of the graph")
    out = wrap(t.array.local)
    st = out._st = t.storage_cell()
    out._gen = st.gen
    return out


# --- the primitives that cross ------------------------------------------------------------------
def _redistribute_rule(g: DTensor, back: tuple) -> Any:
    return gate(_redistribute, (g,), {"placements": back, "back": without_partial(g.placements)})


def _from_local_forward(
    a: Any, mesh: DeviceMesh, placements: tuple, shape: tuple, back: tuple
) -> Any:
    out = DistArray(a, mesh, placements, shape)
    if out.has_data and not memory_of(a).raw(a).flags.c_contiguous:
        out.steps = _steps_of(a, shape)
    return out


def _steps_of(a: np.ndarray, shape: tuple) -> tuple:
    """Strides of the whole whose dimensions lie in the order of those of the part ``a``."""
    out, step = [0] * len(shape), a.itemsize
    for d in sorted(range(len(shape)), key=lambda d: (a.strides[d], -d)):
        out[d] = step if a.strides[d] or a.shape[d] <= 1 else 0
        step *= max(shape[d], 1) if out[d] else 1
    return tuple(out)


def _from_local_rule(g: DTensor, back: tuple) -> Any:
    return g.redistribute(placements=back).to_local()


def _to_local_rule(g: Tensor, mesh: DeviceMesh, placements: tuple, shape: tuple) -> Any:
    back = placements
    return gate(
        _from_local, (g,),
        {"mesh": mesh, "placements": placements, "shape": shape, "back": without_partial(back)},
    )  # fmt: skip


_redistribute = declare_apart(
    "redistribute", lambda a, placements, back: movement.redistribute(a, placements), "a",
    {"a": _redistribute_rule}, KindNode,
)  # fmt: skip
_from_local = declare_apart(
    "from_local", _from_local_forward, "a", {"a": _from_local_rule}, KindNode
)


def _to_local_forward(a: Any, mesh: DeviceMesh, placements: tuple, shape: tuple) -> Any:
    return _seen(a.local) if a.has_data else a.local


_to_local = declare_apart("to_local", _to_local_forward, "a", {"a": _to_local_rule}, LeavingNode)


def from_local(
    local: Tensor,
    mesh: DeviceMesh | None,
    placements: object,
    run_check: bool = False,
    shape: Any = None,
    stride: object = None,
    grad_placements: object = None,
) -> Any:
    """See ``DTensor.from_local``."""
    if isinstance(local, DTensor):
        raise PlacementError(
            f"from_local: a DTensor ({local.placements}) was given; a plain Tensor, this rank's "
            "part, is needed; use redistribute() to change placements"
        )
    if not isinstance(local, Tensor):
        raise TypeError(f"from_local: {type(local).__name__} given; a Tensor is needed")
    mesh = mesh or current_mesh()
    local = _on_mesh(local, mesh)
    wanted = normalized(placements, local.ndim, mesh.ndim, "from_local")
    if shape is None:
        full = list(local.shape)
        for p, n in zip(wanted, mesh.ranks.shape, strict=True):
            if isinstance(p, Shard):
                full[p.dim] *= n
        shape = full
    shape = tuple(int(n) for n in shape)
    if run_check:
        local = _checked(local, mesh, wanted, shape)
    back = without_partial(wanted)
    if grad_placements is not None:
        back = normalized(grad_placements, local.ndim, mesh.ndim, "from_local")
    return gate(
        _from_local, (local,),
        {"mesh": mesh, "placements": wanted, "shape": shape, "back": back},
    )  # fmt: skip


def _checked(local: Tensor, mesh: DeviceMesh, placements: tuple, shape: tuple) -> Tensor:
    """``local`` after a comparison over the ranks: the shapes fit, what is replicated is equal."""
    not_repeated("it calls from_local(run_check=True)")
    place = mesh.get_coordinate()
    if place is None:
        return local
    fit = local_shape(shape, mesh.ranks.shape, place, placements)
    wrong = np.array([int(tuple(local.shape) != fit)], np.int64)
    for group in mesh.get_all_groups():
        group.all_reduce(wrong)
    if wrong[0]:
        raise PlacementError(
            f"from_local: the local part on rank {mesh.get_rank()} has shape {list(local.shape)}; "
            f"for a whole of shape {list(shape)} under {placements} it must be {list(fit)} here "
            "(some rank's part does not fit); pass shape= and stride= of the whole"
        )
    for axis, p in enumerate(placements):
        if p.is_replicate():
            with no_grad():
                same = wrap(local.array.copy(order="C"))
            memory = memory_of(same.array)
            raw = memory.raw(same.array)
            mesh.line(axis).broadcast(raw, 0)
            if local.requires_grad:
                change = memory.held(raw - memory.raw(local.array))
                same = Algebra.add(local, wrap(change))
            local = same
    return local


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | NamedSharding | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """``tensor``, the whole, as a DTensor. Every rank of the mesh calls it.

    The values are those of rank ``src_data_rank`` of each group of ranks (None: every rank cuts
    from its own, and nothing is communicated). A leaf that requires grad gives one.
    """
    if isinstance(device_mesh, NamedSharding):
        sharding = device_mesh
        device_mesh, placements = sharding.mesh, sharding.placements
    mesh = device_mesh or current_mesh()
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different "
                f"device mesh {mesh}."
            )
        wanted = normalized(placements, tensor.ndim, mesh.ndim, "distribute_tensor")
        if tensor.placements != wanted:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different "
                f"placements {wanted}. do you want to call `redistribute` instead?"
            )
        return tensor
    wanted = normalized(placements, tensor.ndim, mesh.ndim, "distribute_tensor")
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf "
            "tensor! Use DTensor.from_local(t, mesh, [Replicate()]).redistribute(...) to record it"
        )
    not_repeated("it calls distribute_tensor(); do that outside, or redistribute a DTensor")
    given = tensor
    with no_grad():
        tensor = _on_mesh(tensor, mesh)
    source = tensor.array
    memory = memory_of(source)
    if not isinstance(source, NullArray):
        if src_data_rank is not None:
            source = _from_source(source, mesh, src_data_rank)
        elif not memory.raw(source).flags.c_contiguous:
            source = source.copy(order="C")
    whole = DistArray(source, mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape))
    spread = movement.redistribute(whole, wanted)
    if spread.local is tensor.array and not isinstance(source, NullArray):
        spread = spread.like(_seen(source))
    if mesh.get_coordinate() is None:
        nothing = memory.held(memory.empty(0, source.dtype))
        spread = DistArray(nothing, mesh, wanted, tuple(tensor.shape))
    out = wrap(spread)
    if isinstance(given, Parameter):
        return Parameter(out, given.requires_grad)
    return out.requires_grad_(given.requires_grad)


def _seen(array: np.ndarray) -> Any:
    """Another view of the same memory."""
    memory = memory_of(array)
    return memory.held(memory.raw(array).view())


def _on_mesh(t: Tensor, mesh: DeviceMesh) -> Any:
    """``t`` on the kind of device that the mesh is of, as PyTorch brings it there."""
    kind = mesh.device_type
    return t if t.is_meta or kind in ("meta", t.device.type) else t.to(kind)


def _from_source(array: Any, mesh: DeviceMesh, source: int) -> Any:
    """``array`` of the ranks whose place along every axis is ``source``."""
    if mesh.get_coordinate() is None:
        return array
    out = array.copy(order="C")
    for axis, n in enumerate(mesh.ranks.shape):
        if n > 1:
            mesh.line(axis).broadcast(memory_of(out).raw(out), min(source, n - 1))
    return out


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable | None = None,
    input_fn: Callable | None = None,
    output_fn: Callable | None = None,
) -> Any:
    """Make the parameters and buffers of ``module`` DTensors, in place.

    ``partition_fn(name, module, mesh)`` is called for every submodule and replaces what it likes;
    the rest is replicated. ``input_fn(module, inputs, mesh)`` and ``output_fn(module, outputs,
    mesh)`` run before and after ``forward``.
    """
    mesh = device_mesh or current_mesh()
    for name, sub in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, sub, mesh)
        _replicate_rest(sub, mesh)
    if input_fn is not None:
        few = len(inspect.signature(input_fn).parameters) == 2
        module.register_forward_pre_hook(
            lambda mod, inputs: input_fn(inputs, mesh) if few else input_fn(mod, inputs, mesh)
        )
    if output_fn is not None:
        short = len(inspect.signature(output_fn).parameters) == 2
        module.register_forward_hook(
            lambda mod, inputs, outputs: (
                output_fn(outputs, mesh) if short else output_fn(mod, outputs, mesh)
            )
        )
    return module


def _replicate_rest(module: Module, mesh: DeviceMesh) -> None:
    whole = [Replicate()] * mesh.ndim
    for name, param in list(module._parameters.items()):
        if param is not None and not isinstance(param, DTensor):
            module.register_parameter(name, distribute_tensor(param, mesh, whole))
    for name, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh, whole)
