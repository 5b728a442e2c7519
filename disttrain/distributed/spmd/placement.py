"""Trees of arrays on devices: laid as trees of layouts say, made of their parts, and functions of
shards over them. What stands for tensors in the trees is a ``Border``'s affair."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ...func.structured_bodies import Border
from ...func.trees.flat import Flat, check_callable, named
from . import arrays, hosts, inventory
from . import mesh as meshes
from .inventory import Device
from .pmap import pmap, size_of
from .shard_map import mapped

Infer = object()  # specs that are those of the arguments
_NO_MESH = (
    "{} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {}. You can "
    "define a context mesh via `{}.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
    "shardings and then the mesh context manager is not required."
)


class Kinds(NamedTuple):
    """The classes that a program's meshes, specs and layouts are of: on one device, over a mesh,
    any."""

    mesh: Any
    spec: Any
    one: Any
    over: Any
    layout: Any


class Placement:
    """The functions, for trees with what ``border`` makes of tensors. ``jit`` makes programs of
    functions."""

    def __init__(self, border: Border, kinds: Kinds, jit: Callable | None = None) -> None:
        self.border, self.kinds, self.jit = border, kinds, jit

    # --- arrays -----------------------------------------------------------------------------------
    def mesh(self) -> Any:
        """The mesh of the block that the program is in (an empty one, where there is none)."""
        return meshes.around() or self.kinds.mesh(np.empty((), object), ())

    def layout(self, value: Tensor) -> Any:
        """How it lies."""
        found = arrays.layout_of(value)
        if isinstance(found, tuple):
            return self.kinds.over(found[0], self.kinds.spec(*found[1]))
        return self.kinds.one(inventory.local_devices()[0]) if found is None else found

    def put(self, x: Any, sharding: Any) -> Any:
        """``x`` where ``sharding`` (a device, too) says."""
        value, weak = self.border.take(x)
        if isinstance(sharding, Device):
            sharding = self.kinds.one(sharding)
        if not isinstance(sharding, self.kinds.layout):
            raise ValueError(f"device_put: invalid device or sharding: {sharding!r}")
        return self.border.give(arrays.lay(value, sharding), weak)

    def make_array_from_callback(
        self, shape: Sequence[int], sharding: Any, data_callback: Callable, dtype: Any = None
    ) -> Any:
        """An array, the part of whose shards at ``index`` is ``data_callback(index)``."""
        where = sharding.local_blocks(tuple(shape))
        parts = {d: self._numpy(data_callback(index), dtype) for d, index in where.items()}
        return self.border.give(arrays.assembled(shape, sharding, parts), False)

    def make_array_from_single_device_arrays(
        self, shape: Sequence[int], sharding: Any, arrays: Sequence, *, dtype: Any = None
    ) -> Any:
        """An array of its shards, in the order of this process' devices."""
        where, rest = sharding.local_blocks(tuple(shape)), iter(arrays)
        if len(arrays) != len(where):
            raise ValueError(
                f"Expected {len(where)} per-device arrays for the addressable devices of "
                f"{sharding}, got {len(arrays)}"
            )
        return self.make_array_from_callback(shape, sharding, lambda _: next(rest), dtype)

    def make_array_from_process_local_data(
        self, sharding: Any, local_data: Any, global_shape: Sequence[int] | None = None
    ) -> Any:
        """An array of what each process has of it."""
        return self.border.give(arrays.of_local(self._numpy(local_data), sharding), False)

    def _numpy(self, value: Any, kind: Any = None) -> np.ndarray:
        found: np.ndarray = self.border.take(np.asarray(value, kind))[0].numpy()
        return found

    # --- trees ------------------------------------------------------------------------------------
    def laid(self, x: Any, shardings: Any, where: str) -> Any:
        """The leaves of ``x``, each put where its entry of ``shardings`` says (None: where it
        is)."""
        leaves, form = self.border.registry.flatten(x)
        entries = self.border.registry.prefix(shardings, x, where)
        pairs = zip(leaves, entries, strict=True)
        made = [a if s is None else self.put(a, self._named(s, where)) for a, s in pairs]
        return form.build(iter(made))

    def _named(self, sharding: Any, where: str) -> Any:
        if not isinstance(sharding, self.kinds.spec):
            return sharding
        mesh = self.mesh()
        if mesh.empty:
            raise RuntimeError(_NO_MESH.format(*where.rsplit(" ", 1), self.border.api))
        return self.kinds.over(mesh, sharding)

    def with_sharding_constraint(self, x: Any, shardings: Any) -> Any:
        """``x``, which lies as ``shardings`` (one for all, or a tree of them) say."""
        return self.laid(x, shardings, "with_sharding_constraint shardings")

    def entered(self, shardings: Any, whole: tuple, kwargs: dict, fixed: Any = ()) -> tuple:
        """The arguments of a function under ``jit(in_shardings=)``; ``fixed``: which are static."""
        given = tuple(shardings) if isinstance(shardings, list) else shardings
        args = tuple([a for i, a in enumerate(whole) if i not in fixed])
        if given is not None and kwargs:
            raise ValueError("pjit does not support kwargs when in_shardings is specified.")
        if isinstance(given, tuple) and len(given) != len(args):
            raise ValueError(
                "pjit in_shardings specification must be a tree prefix of the positional arguments "
                "tuple. In particular, pjit in_shardings must either be a Sharding, a "
                "PartitionSpec, or a tuple of length equal to the number of positional arguments. "
                f"But pjit in_shardings is the wrong length: got a tuple or list of length "
                f"{len(given)} for an args tuple of length {len(args)}."
            )
        found = iter(self.laid(args, given, "jit in_shardings"))
        return tuple([a if i in fixed else next(found) for i, a in enumerate(whole)])

    def left(self, shardings: Any, result: Any) -> Any:
        """The result of one under ``jit(out_shardings=)``."""
        return self.laid(result, shardings, "jit out_shardings")

    # --- hosts ------------------------------------------------------------------------------------
    def assert_equal(self, in_tree: Any, fail_message: str = "") -> None:
        """Raise where a process brings other values than the first."""
        leaves = self.border.registry.flatten(in_tree)[0]
        hosts.check_equal([np.asarray(x) for x in leaves], fail_message)

    def sync_global_devices(self, name: str) -> None:
        """Wait until all processes are here, at the same ``name``."""
        self.assert_equal(name, f"sync_global_devices name mismatch ('{name}')")

    def broadcast_one_to_all(self, in_tree: Any, is_source: bool | None = None) -> Any:
        """The values of the source (the first process), for all."""
        leaves, form = self.border.registry.flatten(in_tree)
        return form.build(iter(hosts.from_one([np.asarray(x) for x in leaves], is_source)))

    def process_allgather(self, in_tree: Any, tiled: bool = False) -> Any:
        """The values of all processes, or the whole of what lies on devices of several."""
        leaves, form = self.border.registry.flatten(in_tree)
        kind, take = self.border.kind, self.border.take
        values = [take(x)[0] if isinstance(x, kind) else x for x in leaves]
        return form.build(iter([hosts.gathered(x, tiled) for x in values]))

    def host_local_array_to_global_array(
        self, local_inputs: Any, global_mesh: Any, pspecs: Any
    ) -> Any:
        """Arrays over all processes of what each has of them."""
        leaves, form = self.border.registry.flatten(local_inputs)
        specs = self.border.registry.prefix(pspecs, local_inputs, "pspecs")
        make, over = self.make_array_from_process_local_data, self.kinds.over
        pairs = zip(leaves, specs, strict=True)
        return form.build(iter([make(over(global_mesh, s), x) for x, s in pairs]))

    def global_array_to_host_local_array(
        self, global_inputs: Any, global_mesh: Any, pspecs: Any
    ) -> Any:
        """What this process has of arrays over all processes."""
        leaves, form = self.border.registry.flatten(global_inputs)
        values = [self.border.take(x)[0] for x in leaves]
        own = [getattr(t, "to_local", functools.partial(_itself, t))() for t in values]
        return form.build(iter([self.border.give(t, False) for t in own]))

    # --- functions of shards ----------------------------------------------------------------------
    def shard_map(
        self, f: Callable | None = None, /, *, out_specs: Any, in_specs: Any = Infer,
        mesh: Any = None, axis_names: Any = frozenset(), check_vma: bool = True,
    ) -> Any:  # fmt: skip
        """``f`` of shards as a function of whole arrays."""
        if f is None:
            return functools.partial(
                self.shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                axis_names=axis_names, check_vma=check_vma,
            )  # fmt: skip
        check_callable(f)
        axes = {axis_names} if isinstance(axis_names, str) else set(axis_names)
        given_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs

        def wrapped(*args: Any) -> Any:
            over, flat = self._over(mesh), Flat(self.border, f, args)
            checked = functools.partial(self._checked, axes or set(over.axis_names))
            if in_specs is Infer:
                lies = [self.layout(t) for t in flat.tensors]
                specs = [getattr(x, "spec", self.kinds.spec()) for x in lies]
            else:
                specs = checked("in_specs", given_specs, args)
            ends: list = []

            def out(outs: list) -> list:
                ends[:] = checked("out_specs", out_specs, flat.form.build(iter(outs)))
                return ends

            name = getattr(f, "__name__", repr(f))
            sizes = over.over(axes)
            outs = mapped(flat, sizes, flat.tensors, specs, out, check_vma, check_vma, name)
            rows = zip(outs, flat.weak, ends, strict=True)
            give = self.border.give
            found = [self.put(give(t, w), self.kinds.over(over, s)) for t, w, s in rows]
            return flat.form.build(iter(found))

        return named(wrapped, f)

    def _over(self, mesh: Any) -> Any:
        found = self.mesh() if mesh is None else mesh
        if found.empty:
            raise ValueError(
                f"The context mesh cannot be empty. Use `{self.border.api}.set_mesh(mesh)` to "
                "enter into a mesh context"
            )
        return found

    def _checked(self, manual: set, where: str, specs: Any, value: Any) -> list:
        """One spec per leaf of ``value``."""
        for spec in self.border.registry.flatten(specs)[0]:
            if not isinstance(spec, self.kinds.spec):
                raise TypeError(
                    f"shard_map {where} argument must be a pytree of "
                    f"`{self.border.api}.sharding.PartitionSpec` instances, but:\n\n  {where} is "
                    f"{spec} of type {type(spec).__name__}, \n\nCheck the {where} values passed to "
                    "shard_map."
                )
            for name in set(spec.axes()) - manual:
                raise ValueError(
                    f"shard_map {where} argument must refer to an axis marked as manual "
                    f"({frozenset(manual)}), but:\n\n  {where} refers to '{name}'\n\nCheck the "
                    f"{where} values passed to shard_map."
                )
        found = self.border.registry.prefix(specs, value, f"shard_map {where}")
        return [self.kinds.spec() if s is None else s for s in found]

    def pmap(
        self, fun: Callable, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
        static_broadcasted_argnums: int | Iterable[int] = (), devices: Sequence | None = None,
        backend: str | None = None, axis_size: int | None = None,
        donate_argnums: int | Iterable[int] = (),
    ) -> Any:  # fmt: skip
        """``fun`` on all devices at once, each of which gets its own part of the mapped axes."""
        check_callable(fun)
        registry, static = self.border.registry, static_broadcasted_argnums
        name = object() if axis_name is None else axis_name
        fixed = {static} if isinstance(static, int) else set(static)

        def dynamic(args: tuple) -> tuple:
            return tuple(None if i in fixed else a for i, a in enumerate(args))

        def axes_of(args: tuple, kwargs: dict) -> list:
            axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
            if isinstance(axes, tuple) and fixed and len(axes) == len(args):
                axes = dynamic(axes)
            found: list = registry.prefix(axes, dynamic(args), "pmap in_axes[0]")
            return found + [0] * len(registry.flatten(kwargs)[0])

        def on_all(*args: Any, **kwargs: Any) -> Any:
            def of(*given: Any, **more: Any) -> Any:
                return fun(*[args[i] if i in fixed else a for i, a in enumerate(given)], **more)

            flat, axes = Flat(self.border, of, dynamic(args), kwargs), axes_of(args, kwargs)

            def ends(outs: list) -> list:
                result = flat.form.build(iter(range(len(outs))))
                found: list = registry.prefix(out_axes, result, "pmap out_axes")
                return found

            sizes = zip(flat.avals, axes, strict=True)
            size = next(a.shape[d] for a, d in sizes if d is not None)
            return flat.tree(pmap(flat, name, axes, ends, size)(*flat.tensors))

        assert self.jit is not None
        staged = self.jit(named(on_all, fun), static_argnums=tuple(fixed) or None)

        def pmap_f(*args: Any, **kwargs: Any) -> Any:
            known = inventory.local_devices() if devices is None else list(devices)
            leaves = registry.flatten((dynamic(args), kwargs))[0]
            shapes = [tuple(getattr(x, "shape", ())) for x in leaves]
            title = getattr(fun, "__name__", repr(fun))
            size = size_of(title, shapes, axes_of(args, kwargs), axis_size, len(known))
            result = staged(*args, **kwargs)
            return result if inventory.spread() else self._placed(result, out_axes, known[:size])

        pmap_f.lower = staged.lower  # type: ignore[attr-defined]
        return named(pmap_f, fun)

    def _placed(self, result: Any, out_axes: Any, devices: list) -> Any:
        """The result, which lies on these devices along the mapped axes."""
        mesh = self.kinds.mesh(devices, "_internal_pmap_axis_name")
        axes = self.border.registry.prefix(out_axes, result, "pmap out_axes")
        leaves, form = self.border.registry.flatten(result)
        spec, over = self.kinds.spec, self.kinds.over
        cuts = [() if d is None else (*[None] * (d % a.ndim), *mesh.axis_names)
                for a, d in zip(leaves, axes, strict=True)]  # fmt: skip
        pairs = zip(leaves, cuts, strict=True)
        return form.build(iter([self.put(a, over(mesh, spec(*c))) for a, c in pairs]))


def _itself(value: Any) -> Any:
    return value


__all__ = ["Infer", "Kinds", "Placement"]
