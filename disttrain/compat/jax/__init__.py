"""JAX's names over disttrain: ``import disttrain.compat.jax as jax``.

    python -m disttrain.compat.jax train.py
    dtrun --as-jax --nproc-per-node 4 train.py

put it under JAX's own names. Names and conventions alone: what computes lies in the packages that
all faces stand on.
"""

from __future__ import annotations

from typing import Any

from ..publish import Shim, missing, publish, refuse_real
from . import (
    callbacks,
    custom,
    errors,
    extending,
    jaxpr,
    key_types,
    lax,
    linear,
    nn,
    numpy,
    parallel,
    random,
    small_modules,
    transforms,
    tree,
    types,
)
from . import (
    config as _config,
)
from . import (
    jit as _jit,
)
from .array import Array
from .example_libraries import optimizers, stax
from .nn import initializers
from .numpy import fft, linalg
from .scipy import linalg as scipy_linalg
from .scipy import signal, special, stats

VERSION = "0.10.2"

_CORE = ("ClosedJaxpr", "Jaxpr", "Literal", "ShapedArray", "Var")
NAMES: dict[str, Any] = {
    **transforms.NAMES,
    **{n: getattr(_jit, n) for n in _jit.__all__},
    **{n: getattr(custom, n) for n in custom.__all__},
    **_config.NAMES,
    **linear.NAMES,
    **parallel.MODULES["jax"],
    "Array": Array, "__version__": VERSION, "__version_info__": extending.VERSION_INFO,
    "Ref": extending.Ref, "new_ref": extending.Ref, "remat": custom.checkpoint,
    "pure_callback": callbacks.pure_callback,
    "effects_barrier": callbacks.effects_barrier,
}  # fmt: skip


_MODULES: dict[str, Any] = {  # of names, by the module that has them under "jax"
    "numpy": numpy.NAMES, "numpy.linalg": linalg.NAMES, "numpy.fft": fft.NAMES,
    **parallel.MODULES, "lax": {**lax.NAMES, **parallel.MODULES["lax"]}, "nn": nn.NAMES,
    "nn.initializers": {**initializers.NAMES, "Initializer": Any},
    "random": random.NAMES,
    "tree_util": tree.NAMES, "tree": tree.SHORT,
    "errors": {n: e for n, e in vars(errors).items() if n.endswith("Error")},
    "debug": {"print": callbacks.debug_print, "callback": callbacks.debug_callback,
              **parallel.MODULES["debug"]},
    "experimental": {"io_callback": callbacks.io_callback},
    "core": {n: getattr(jaxpr, n) for n in _CORE},
    "custom_derivatives": {
        n: NAMES[n] for n in ("closure_convert", "custom_gradient", "custom_jvp", "custom_vjp")
    },
    "ad_checkpoint": {
        "checkpoint": custom.checkpoint, "checkpoint_name": linear.checkpoint_name,
        "checkpoint_policies": custom.checkpoint_policies,
    },
    "stages": {"Traced": _jit.Traced, "Lowered": _jit.Lowered, "Compiled": _jit.Executable},
    "example_libraries": {},
    "example_libraries.optimizers": optimizers.NAMES,
    "example_libraries.stax": stax.NAMES,
    "scipy": {}, "scipy.special": special.NAMES, "scipy.linalg": scipy_linalg.NAMES,
    "scipy.signal": signal.NAMES, "scipy.stats": stats.NAMES,
    **{f"scipy.stats.{n}": vars(d) for n, d in stats.NAMES.items() if hasattr(d, "__dict__")},
}  # fmt: skip
del _MODULES["jax"]
for _name, _names in (*small_modules.NAMES.items(), *extending.NAMES.items()):
    _MODULES[_name] = {**_MODULES.get(_name, {}), **_names}

__all__ = ["Array", "install"]


def install() -> None:
    """Publish the stand-in under JAX's names. Calling it again changes nothing."""
    if not refuse_real("jax", "compat.jax"):
        publish(build(), {}, VERSION)


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    modules = {"jax": Shim("jax").give(**NAMES)}
    for name, names in _MODULES.items():
        given = {n: v for n, v in names.items() if n[:2] != "__" or n == "__version_info__"}
        modules[f"jax.{name}"] = Shim(f"jax.{name}").give(**given)
    return modules


def _built() -> dict[str, Shim]:
    modules = build()
    for name, module in list(modules.items())[1:]:
        parent, _, child = name.rpartition(".")
        setattr(modules[parent], child, module)
    return modules


_here = _built()
__getattr__ = missing(_here["jax"])
globals().update(NAMES)
for _name in (
    "ad_checkpoint", "core", "custom_derivatives", "debug", "distributed", "dtypes", "experimental",
    "stages", "tree_util", "typing",
):  # fmt: skip
    globals()[_name] = _here[f"jax.{_name}"]
