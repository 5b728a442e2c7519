"""How a module is spread over a mesh: what its parameters, inputs and results lie as.

A style replaces the parameters of a module by DTensors and puts hooks around its ``forward`` which
take plain Tensors in, as parts of DTensors, and give plain Tensors out. What runs in between is the
module's own forward, on DTensors. After Shoeybi et al., Megatron-LM (arXiv:1909.08053), and for
sequences Korthikanti et al. (arXiv:2205.05198).
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from .... import nn
from ....core.tensor import Tensor
from ....errors import ConfigError, PlacementError, ShapeError
from ....trace import warn
from ...mesh import DeviceMesh
from ..api import DTensor, distribute_tensor
from ..placements import Placement, Replicate, Shard, local_span, normalized

_SPREAD_AS = "_spread_as"  # on a plain parameter: a weak reference to the DTensor in its place
Layouts = Placement | Sequence[Placement | None] | None


class ParallelStyle(ABC):
    """``_apply(module, device_mesh)`` spreads the module and returns it."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module: ...

    def _spread(self, module: nn.Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
        """Replace a parameter (None: it has none) by a DTensor of the same values."""
        param = module._parameters.get(name)
        if param is None:
            return
        if isinstance(param, DTensor):
            if param.device_mesh == mesh:
                raise ConfigError(
                    f"{type(self).__name__}: {type(module).__name__}.{name} is a DTensor already, "
                    f"{param.placements} on {mesh}; a module takes one style: name it once in the "
                    "plan"
                )
            raise ConfigError(
                f"{type(self).__name__}: {type(module).__name__}.{name} lies on another mesh "
                f"already, {param.device_mesh}; spread it for tensor parallelism first, and call "
                "fully_shard after that"
            )
        made: Any = _shared(param, mesh, placement)
        if made is None:
            spread = distribute_tensor(
                param.detach(), mesh, [placement], src_data_rank=self.src_data_rank
            )
            made = nn.Parameter(spread, param.requires_grad)
            setattr(param, _SPREAD_AS, weakref.ref(made))
        module.register_parameter(name, made)

    def _replicate_rest(self, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, param in list(module._parameters.items()):
            if param is not None and not isinstance(param, DTensor):
                self._spread(module, name, mesh, Replicate())
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and not isinstance(buffer, DTensor):
                whole = distribute_tensor(
                    buffer, mesh, [Replicate()], src_data_rank=self.src_data_rank
                )
                module._buffers[name] = whole

    def __repr__(self) -> str:
        shown = {k: v for k, v in vars(self).items() if k != "src_data_rank"}
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in shown.items())})"


def spread_as(param: Tensor) -> DTensor | None:
    """What a style has made of ``param`` in one of the modules that share it."""
    known = getattr(param, _SPREAD_AS, None)
    return None if known is None else known()


def _shared(param: Tensor, mesh: DeviceMesh, placement: Placement) -> DTensor | None:
    """What ``param`` is already in another module that shares it: modules go on to share it, if
    they need it to lie in the same way."""
    known = spread_as(param)
    if known is None:
        return None
    wanted = normalized([placement], param.ndim, 1, "parallelize_module")
    if known.device_mesh == mesh and known.placements == wanted:
        return known
    warn(
        f"parallelize_module: a parameter of shape {list(param.shape)} that two modules share is "
        f"to lie as {known.placements} in one and as {wanted} in the other: they become two "
        "parameters, which train apart; give both modules styles that cut it alike "
        "(RowwiseParallel for an Embedding, ColwiseParallel for the Linear that shares its weight)",
    )
    return None


def as_dtensor(
    x: object, mesh: DeviceMesh, layout: Placement, where: str, size: int = 0
) -> DTensor:
    """``x``, or the DTensor whose part it is. ``size``: of the whole along the sharded dimension,
    where that is known (else all parts are taken to be as long as this one)."""
    if isinstance(x, DTensor):
        return x
    if not isinstance(x, Tensor):
        raise ConfigError(
            f"{where}: a {type(x).__name__} was given where a Tensor is needed, which is taken as "
            f"{layout}; give None as its layout to pass it on as it is"
        )
    (placed,) = normalized([layout], x.ndim, 1, where)
    shape = list(x.shape)
    if size and isinstance(placed, Shard):
        _check_piece(x, mesh, placed, where, size)
        shape[placed.dim] = size
        return DTensor.from_local(x, mesh, [placed], shape=shape)
    return DTensor.from_local(x, mesh, [placed])


def _check_piece(x: Tensor, mesh: DeviceMesh, placed: Shard, where: str, size: int) -> None:
    """Whether ``x`` can be this rank's piece of something of ``size``."""
    place, given = mesh.get_coordinate(), x.shape[placed.dim]
    if place is None:
        return
    needed = local_span(size, mesh.ranks.shape, place, (placed,), placed.dim)[0]
    if given != needed:
        raise ShapeError(
            f"{where}: a plain input of shape {list(x.shape)} was given, which is taken as this "
            f"rank's piece of a whole with {size} features; needed is a piece with {needed} of "
            f"them, not {given}: give what a ColwiseParallel layer gives, or pass "
            "input_layouts=Replicate() if every rank has the whole"
        )


def _first(inputs: tuple, where: str) -> Any:
    if not inputs:
        raise ConfigError(
            f"{where}: it was called without a positional argument; needed is the input as the "
            "first one: write module(x), not module(input=x)"
        )
    return inputs[0]


def moved(x: DTensor, layout: Placement, where: str) -> DTensor:
    """``x`` under ``layout``."""
    (wanted,) = normalized([layout], x.ndim, 1, where)
    return x if x.placements == (wanted,) else x.redistribute(placements=[wanted])


def _given_out(x: DTensor, local: bool) -> Tensor:
    return x.to_local() if local else x


class _Linear(ParallelStyle):
    """What the two ways to cut a Linear or an Embedding have in common."""

    default_input: Placement
    default_output: Placement

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or self.default_input,)
        self.output_layouts = (output_layouts or self.default_output,)
        self.use_local_output = use_local_output

    def _hook(self, module: nn.Module, mesh: DeviceMesh, desired: Placement) -> nn.Module:
        name = f"{type(self).__name__} of {type(module).__name__}"
        layout, out_layout, local = self.input_layouts[0], self.output_layouts[0], (
            self.use_local_output
        )  # fmt: skip

        def before(mod: nn.Module, inputs: tuple) -> Any:
            given = _first(inputs, name)
            last = isinstance(layout, Shard) and layout.dim in (-1, getattr(given, "ndim", 0) - 1)
            size = getattr(mod, "in_features", 0) if last else 0
            x = as_dtensor(given, mesh, layout, name, size)
            return (moved(x, desired, name), *inputs[1:])

        def after(mod: nn.Module, inputs: tuple, out: DTensor) -> Any:
            return _given_out(moved(out, out_layout, name), local)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module

    def _unknown(self, module: nn.Module) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} currently only support nn.Linear and nn.Embedding! A "
            f"{type(module).__name__} was given: name the Linear layers inside of it in the plan "
            "('attention.wq': ...), or spread it with distribute_module"
        )


class ColwiseParallel(_Linear):
    """Cut a Linear's results (an Embedding's features): every rank computes some of them from the
    whole input.

    ``input_layouts``: what a plain input is (default: whole on every rank); ``output_layouts``:
    what is given out (default: cut along the last dimension, as it is computed), as a plain Tensor
    with ``use_local_output``.
    """

    default_input, default_output = Replicate(), Shard(-1)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if isinstance(module, nn.Linear):
            self._spread(module, "weight", device_mesh, Shard(0))
            self._spread(module, "bias", device_mesh, Shard(0))
        elif isinstance(module, nn.Embedding):
            self._spread(module, "weight", device_mesh, Shard(1))
        else:
            raise self._unknown(module)
        self._replicate_rest(module, device_mesh)
        return self._hook(module, device_mesh, Replicate())


class RowwiseParallel(_Linear):
    """Cut a Linear's input features (an Embedding's rows): every rank computes a part of the sum
    that each result is.

    ``input_layouts``: what a plain input is (default: cut along the last dimension; for an
    Embedding whole is needed: pass ``Replicate()``, and cut numbers are gathered first);
    ``output_layouts``: the sum whole on every rank (``Replicate()``, the default: an all-reduce) or
    cut (``Shard(1)`` for sequences: a reduce-scatter).
    """

    default_input, default_output = Shard(-1), Replicate()

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if isinstance(module, nn.Linear):
            self._spread(module, "weight", device_mesh, Shard(1))
            self._spread(module, "bias", device_mesh, Replicate())
            desired: Placement = Shard(-1)
        elif isinstance(module, nn.Embedding):
            self._spread(module, "weight", device_mesh, Shard(0))
            desired = Replicate()
        else:
            raise self._unknown(module)
        self._replicate_rest(module, device_mesh)
        return self._hook(module, device_mesh, desired)


class SequenceParallel(ParallelStyle):
    """Run a LayerNorm, RMSNorm or Dropout on a piece of each sequence, with whole parameters whose
    gradients are summed over the pieces. Inputs are pieces along ``sequence_dim`` (a DTensor is cut
    so), results are DTensors, or plain Tensors with ``use_local_output``."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def __repr__(self) -> str:
        dim, local = self.sequence_sharding[0].dim, self.use_local_output
        return f"SequenceParallel(sequence_dim={dim}, use_local_output={local})"

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        name = f"SequenceParallel of {type(module).__name__}"
        layout, local = self.sequence_sharding[0], self.use_local_output
        for sub in module.modules():
            self._replicate_rest(sub, device_mesh)

        def before(mod: nn.Module, inputs: tuple) -> Any:
            given = _first(inputs, name)
            if not isinstance(given, Tensor):
                raise ValueError(
                    f"expecting input of {mod} to be a Tensor or DTensor, but got {given}"
                )
            return (moved(as_dtensor(given, device_mesh, layout, name), layout, name),
                    *inputs[1:])  # fmt: skip

        def after(mod: nn.Module, inputs: tuple, out: DTensor) -> Any:
            return _given_out(out, local)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module


class PrepareModuleInput(ParallelStyle):
    """Before a module's forward, take its inputs as ``input_layouts`` and move them to
    ``desired_input_layouts``: one layout per positional argument (None: pass it on as it is), and
    by name for keyword arguments. ``use_local_output``: give it plain Tensors."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _each(input_layouts)
        self.desired_input_layouts = _each(desired_input_layouts)
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        _as_many("PrepareModuleInput", self.input_layouts, self.desired_input_layouts)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise AssertionError(
                "input_kwarg_layouts and desired_input_kwarg_layouts should have same length! "
                f"They name {list(self.input_kwarg_layouts)} and "
                f"{list(self.desired_input_kwarg_layouts)}; give both for each argument"
            )

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        name = f"PrepareModuleInput of {type(module).__name__}"

        def before(mod: nn.Module, inputs: tuple, kwargs: dict) -> tuple:
            if self.input_layouts is not None:
                inputs = _prepared(name, "inputs", inputs, self.input_layouts,
                                   self.desired_input_layouts, device_mesh,
                                   self.use_local_output)  # fmt: skip
            wanted = self.desired_input_kwarg_layouts
            return inputs, {
                k: _one(v, self.input_kwarg_layouts.get(k), wanted.get(k), device_mesh,
                        self.use_local_output, name)
                for k, v in kwargs.items()
            }  # fmt: skip

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """After a module's forward, take its results as ``output_layouts`` and move them to
    ``desired_output_layouts``, one layout per result; ``use_local_output``: give plain Tensors."""

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _each(output_layouts)
        self.desired_output_layouts = _each(desired_output_layouts)
        self.use_local_output = use_local_output
        _as_many("PrepareModuleOutput", self.output_layouts, self.desired_output_layouts)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        name = f"PrepareModuleOutput of {type(module).__name__}"

        def after(mod: nn.Module, inputs: tuple, outputs: Tensor | tuple) -> Any:
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            found = _prepared(name, "outputs", several, self.output_layouts,
                              self.desired_output_layouts, device_mesh,
                              self.use_local_output)  # fmt: skip
            return found[0] if len(found) == 1 else found

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """``PrepareModuleInput`` and ``PrepareModuleOutput`` in one."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


def _each(layouts: Layouts) -> tuple | None:
    """One layout per argument."""
    if layouts is None:
        return None
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


def _as_many(where: str, given: tuple | None, wanted: tuple | None) -> None:
    if given is None:
        return
    if wanted is None or len(wanted) != len(given):
        raise AssertionError(
            f"{where}: input_layouts and desired_input_layouts should have same length! "
            f"{len(given)} layouts were given and {0 if wanted is None else len(wanted)} desired "
            "ones; give one of each per tensor (None passes it on as it is)"
        )


def _prepared(
    where: str, what: str, values: tuple, given: Any, wanted: Any, mesh: DeviceMesh, local: bool
) -> tuple:
    if len(values) != len(given):
        raise PlacementError(
            f"{where}: module {what} and layouts should have same length! {len(values)} {what}, "
            f"{len(given)} layouts; give None for what shall pass as it is"
        )
    return tuple(
        _one(v, g, w, mesh, local, where) for v, g, w in zip(values, given, wanted, strict=True)
    )


def _one(
    value: Tensor | str,
    given: Placement | None,
    wanted: Placement | None,
    mesh: DeviceMesh,
    local: bool,
    where: str,
) -> Any:
    if given is None:
        return value
    x = as_dtensor(value, mesh, given, where)
    return _given_out(x if wanted is None else moved(x, wanted, where), local)
