"""``parallelize_module``: styles for the submodules that a plan names."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from warnings import warn

from .... import nn
from ....errors import ConfigError
from ...invariant.shards import DEFAULT_COUNT
from ...invariant.strategy import check_mode, pin_threads
from ...mesh import DeviceMesh, current_mesh
from .style import ColwiseParallel, ParallelStyle, spread_as

_HEADS = ("n_heads", "num_heads", "n_head", "num_attention_heads", "heads")


def parallelize_module(
    module: nn.Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
    deterministic: str | None = None,
    virtual_shards: int = DEFAULT_COUNT,
) -> nn.Module:
    """Spread ``module`` over a 1-D mesh, in place: by a style, or by a plan {name: style}.

    Names are those of submodules ("layers.0.w1"; "" is the module itself); each part may be a
    pattern ("layers.*.w[12]"). All ranks of the mesh call it. The values are those of
    ``src_data_rank`` (None: every rank cuts its own). A name that fits nothing is said and skipped.
    ``deterministic="global"``: results on DTensors of this mesh are bitwise the same on any number
    of ranks that divides ``virtual_shards``, a power of two.
    """
    mesh = device_mesh or current_mesh()
    if mesh.ndim != 1:
        raise ConfigError(
            f"parallelize_module: a mesh of {mesh.ndim} dimensions, {mesh.axis_names}, was given; "
            "one is needed: slice it, as in mesh['tp']"
        )
    if check_mode(deterministic):
        _fix(mesh, virtual_shards)
        module.register_forward_pre_hook(lambda *_: pin_threads())
    if parallelize_plan is None:
        warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so "
            "this parallelize_module call will do nothing.",
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, Mapping):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        found = matches(module, path)
        for parent, sub in found:
            _check_heads(parent, sub, path, style, mesh)
        if not found:
            warn(
                f"Parallelize plan key '{path}' could not be resolved: no submodule of "
                f"{type(module).__name__} has a name like it, skipping this plan entry.",
                stacklevel=2,
            )
        for sub in dict.fromkeys(sub for _, sub in found):
            parallelize_module(sub, mesh, style, src_data_rank=src_data_rank)
    _check_shared(module)
    return module


def _fix(mesh: DeviceMesh, shards: int) -> None:
    """Let work along ``mesh`` be cut into ``shards`` pieces on any number of ranks."""
    if shards < 1 or shards & (shards - 1) or shards % mesh.size():
        raise ConfigError(
            f"parallelize_module: virtual_shards={shards} was given for {mesh.size()} ranks; "
            "needed is a power of two that the number of ranks divides: sums are joined by a tree "
            "over the pieces, of which every rank has a branch"
        )
    if mesh.device_type != "cpu":
        raise ConfigError(
            f'parallelize_module: deterministic="global" was given for a mesh of '
            f"{mesh.device_type!r} devices; products in fixed pieces are made on the CPU only"
        )
    pin_threads(first=True)
    mesh.virtual_shards = shards


def _check_shared(module: nn.Module) -> None:
    """Say so where a module keeps a plain parameter that one sharing it has spread."""
    for name, param in module.named_parameters():
        spread = spread_as(param)
        if spread is not None:
            warn(
                f"parallelize_module: {name} was shared with a module of the plan, whose parameter "
                f"is a DTensor now, {spread.placements}; {name} is not, and trains apart from it: "
                "name both modules in the plan",
                stacklevel=3,
            )


def matches(module: nn.Module, path: str) -> list[tuple[nn.Module, nn.Module]]:
    """The submodules whose names fit ``path``, part by part, each with what holds it; one that is
    held under several names, by any of them."""
    found = [(module, module)]
    for token in path.split(".") if path else ():
        found = [
            (parent, child)
            for _, parent in found
            for name, child in parent._modules.items()
            if child is not None and fnmatch(name, token)
        ]
    return found


def _check_heads(
    parent: nn.Module, sub: nn.Module, path: str, style: ParallelStyle, mesh: DeviceMesh
) -> None:
    """Say so where the features that a rank gets are no whole number of attention heads."""
    heads = next((h for n in _HEADS if isinstance(h := getattr(parent, n, None), int)), 0)
    if not (isinstance(style, ColwiseParallel) and isinstance(sub, nn.Linear) and heads > 0):
        return
    if not style.use_local_output or sub.out_features % heads:
        return
    each, piece = sub.out_features // heads, -(-sub.out_features // mesh.size())
    if piece % each:
        warn(
            f"parallelize_module: {path}: {heads} heads of {each} features on {mesh.size()} ranks: "
            f"a rank gets {piece} features, no whole number of heads, and a forward that views "
            f"them as heads will fail; use a number of ranks that divides {heads}, or "
            "ColwiseParallel(use_local_output=False)",
            stacklevel=3,
        )
