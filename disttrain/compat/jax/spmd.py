"""``pmap`` and ``shard_map`` with JAX's conventions, over ``distributed.spmd``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...distributed.spmd import inventory
from ...distributed.spmd import pmap as over_devices
from ...distributed.spmd.pmap import size_of
from ...distributed.spmd.shard_map import mapped
from ...func.trees.flat import Flat, check_callable, named
from . import sharding as lies
from . import tree
from .array import wrap
from .flat import BORDER
from .jit import jit
from .sharding import Mesh, NamedSharding, PartitionSpec

_registry = tree.default_registry
Infer = object()  # specs that are those of the arguments


def shard_map(
    f: Callable | None = None, /, *, out_specs: Any, in_specs: Any = Infer, mesh: Any = None,
    axis_names: Any = frozenset(), check_vma: bool = True,
) -> Any:  # fmt: skip
    """``f`` of shards as a function of whole arrays."""
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names,
            check_vma=check_vma,
        )  # fmt: skip
    check_callable(f)
    axes = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    given_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs

    def wrapped(*args: Any) -> Any:
        over, flat = _mesh(mesh), Flat(BORDER, f, args)
        infer = [getattr(lies.sharding_of(wrap(t)), "spec", PartitionSpec()) for t in flat.tensors]
        checked = functools.partial(_checked, axes or set(over.axis_names))
        specs = infer if in_specs is Infer else checked("in_specs", given_specs, args)
        ends: list = []

        def out(outs: list) -> list:
            ends[:] = checked("out_specs", out_specs, flat.form.build(iter(outs)))
            return ends

        name = getattr(f, "__name__", repr(f))
        sizes = over.over(axes)
        outs = mapped(flat, sizes, flat.tensors, specs, out, check_vma, check_vma, name)
        found = [lies.put(wrap(t, w), NamedSharding(over, s))
                 for t, w, s in zip(outs, flat.weak, ends, strict=True)]  # fmt: skip
        return flat.form.build(iter(found))

    return named(wrapped, f)


def shard_map_old(
    f: Callable, mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True,
    auto: Any = frozenset(), check_vma: bool | None = None,
) -> Any:  # fmt: skip
    """``jax.experimental.shard_map.shard_map``."""
    names = frozenset(mesh.axis_names) - frozenset(auto) if auto else frozenset()
    check = check_rep if check_vma is None else check_vma
    return shard_map(
        f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=check
    )


def _mesh(mesh: Any) -> Mesh:
    found: Mesh = lies.get_mesh() if mesh is None else mesh
    if found.empty:
        raise ValueError(
            "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to enter into a mesh "
            "context"
        )
    return found


def _checked(manual: set, where: str, specs: Any, value: Any) -> list:
    """One spec per leaf of ``value``."""
    for spec in _registry.flatten(specs)[0]:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map {where} argument must be a pytree of `jax.sharding.PartitionSpec` "
                f"instances, but:\n\n  {where} is {spec} of type {type(spec).__name__}, \n\nCheck "
                f"the {where} values passed to shard_map."
            )
        for name in set(spec.axes()) - manual:
            raise ValueError(
                f"shard_map {where} argument must refer to an axis marked as manual "
                f"({frozenset(manual)}), but:\n\n  {where} refers to '{name}'\n\nCheck the {where} "
                "values passed to shard_map."
            )
    found = tree.default_registry.prefix(specs, value, f"shard_map {where}")
    return [PartitionSpec() if s is None else s for s in found]


def pmap(
    fun: Callable, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (), devices: Sequence | None = None,
    backend: str | None = None, axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Any:  # fmt: skip
    """``fun`` on all devices at once, each of which gets its own part of the mapped axes."""
    check_callable(fun)
    name = object() if axis_name is None else axis_name
    static = static_broadcasted_argnums
    fixed = {static} if isinstance(static, int) else set(static)

    def axes_of(args: tuple, kwargs: dict) -> list:
        axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        if isinstance(axes, tuple) and fixed and len(axes) == len(args):
            axes = tuple(None if i in fixed else a for i, a in enumerate(axes))
        rest = tuple(None if i in fixed else a for i, a in enumerate(args))
        found = tree.default_registry.prefix(axes, rest, "pmap in_axes[0]")
        return found + [0] * len(_registry.flatten(kwargs)[0])

    def on_all(*args: Any, **kwargs: Any) -> Any:
        dynamic = tuple(None if i in fixed else a for i, a in enumerate(args))

        def of(*given: Any, **more: Any) -> Any:
            return fun(*[args[i] if i in fixed else a for i, a in enumerate(given)], **more)

        flat = Flat(BORDER, of, dynamic, kwargs)
        axes = axes_of(args, kwargs)

        def ends(outs: list) -> list:
            result = flat.form.build(iter(range(len(outs))))
            return tree.default_registry.prefix(out_axes, result, "pmap out_axes")

        size = next(a.shape[d] for a, d in zip(flat.avals, axes, strict=True) if d is not None)
        return flat.tree(over_devices(flat, name, axes, ends, size)(*flat.tensors))

    staged = jit(named(on_all, fun), static_argnums=tuple(fixed) or None)

    def pmap_f(*args: Any, **kwargs: Any) -> Any:
        known = inventory.local_devices() if devices is None else list(devices)
        dynamic = tuple(None if i in fixed else a for i, a in enumerate(args))
        shapes = [tuple(getattr(x, "shape", ())) for x in _registry.flatten((dynamic, kwargs))[0]]
        title = getattr(fun, "__name__", repr(fun))
        size = size_of(title, shapes, axes_of(args, kwargs), axis_size, len(known))
        result = staged(*args, **kwargs)
        return result if inventory.spread() else _placed(result, out_axes, known[:size])

    pmap_f.lower = staged.lower  # type: ignore[attr-defined]
    return named(pmap_f, fun)


def _placed(result: Any, out_axes: Any, devices: list) -> Any:
    """The result, which lies on these devices along the mapped axes."""
    mesh = Mesh(devices, "_internal_pmap_axis_name")
    axes = tree.default_registry.prefix(out_axes, result, "pmap out_axes")
    leaves, form = _registry.flatten(result)
    cuts = [() if d is None else (*[None] * (d % a.ndim), *mesh.axis_names)
            for a, d in zip(leaves, axes, strict=True)]  # fmt: skip
    found = [
        lies.put(a, NamedSharding(mesh, PartitionSpec(*c)))
        for a, c in zip(leaves, cuts, strict=True)
    ]
    return form.build(iter(found))
