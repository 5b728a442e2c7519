"""``with autocast("cuda", dtype=bfloat16):`` products run in a lower type, sums and exponentials in
float32, the rest as their arguments are. Micikevicius et al., Mixed Precision Training, ICLR 2018.

Casts are operations of the graph, so gradients come back in the types of the parameters. Backward
computes in the types of forward, wherever it is called. A parameter that several operations take is
cast once while the outermost block lasts. PyTorch's lists of the CPU are shorter; products there
are computed in float32 from what the cast has left, and rounded: half types are not faster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..backends.device.platform import offered, present
from ..context import current, thread
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..core.types.casting import casting
from ..core.types.device import device
from ..ops.primitives import elementwise as el
from ..trace import warn

# PyTorch's lists, for primitives.
LOWER = frozenset("matmul linear conv attention".split())
FULL = frozenset(
    "acos asin cosh cross_entropy cumprod cumsum erfinv exp expm1 exp2 group_norm layer_norm log "
    "log10 log1p log2 log_softmax logsumexp pow prod reciprocal rms_norm rsqrt sinh softmax sum "
    "tan total_norm".split()
)
FULL_ON_CPU = frozenset("cross_entropy prod".split())
# Functions of several operations that the lists of the CPU do not have: they compute in the types
# of their arguments.
OWN_ON_CPU = frozenset(
    "addmv addr bilinear cosine_similarity dist dot linalg_norm matrix_norm mv norm normalize "
    "multilabel_soft_margin_loss pairwise_distance softplus vector_norm".split()
)
# And those that only the lists of the CPU have.
FUNCTIONS_FULL_ON_CPU = frozenset(
    "adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d fractional_max_pool2d "
    "fractional_max_pool3d grid_sample max_pool3d nanquantile normalized_images polar quantile "
    "trace view_as_complex".split()
)
_ON_CPU = {**dict.fromkeys(FUNCTIONS_FULL_ON_CPU, "full"), **dict.fromkeys(OWN_ON_CPU, "own")}
_LOW_TYPES: tuple[dtypes.dtype, ...] = (dtypes.float16, dtypes.bfloat16)
_BOTH_TYPES = (dtypes.float32, *_LOW_TYPES)
_DEFAULTS = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}
_CHOSEN = "amp.autocast.dtypes"  # the slot of types that a program has set
_CACHED = "amp.autocast.cached"  # and whether casts of parameters are kept


class Chooser:
    """What one block of autocast does to the arguments of operations."""

    def __init__(self, kind: str, dtype: dtypes.dtype, cache: dict | None) -> None:
        self.kind, self.dtype, self.cache = kind, dtype, cache
        self.full = FULL_ON_CPU if kind == "cpu" else FULL

    def cast(self, prim: Primitive, args: tuple) -> tuple:
        """``args``, those of this kind of device in the type that ``prim`` is to compute in."""
        name = prim.name
        if name in LOWER:
            wanted, given = self.dtype, _BOTH_TYPES
        elif name in self.full:
            wanted, given = dtypes.float32, _LOW_TYPES
        else:
            return args
        if thread.depth != thread.autocast_depth:  # backward has the types of forward
            return args
        return tuple([self._one(a, wanted, given) if isinstance(a, Tensor) else a for a in args])

    def around(self, how: str, fn: Callable, args: tuple, kwargs: dict) -> Any:
        """``fn`` as one operation: its arguments cast, what is inside in their types."""
        if thread.depth != thread.autocast_depth:
            return fn(*args, **kwargs)
        wanted, given = dtypes.float32, _LOW_TYPES
        if self.kind == "cpu":
            how = _ON_CPU.get(fn.__name__, how)
        if how == "own":
            given = ()
        elif how == "lower":
            wanted, given = self.dtype, (dtypes.float32, *_LOW_TYPES)
        elif how == "widest":
            types = {a.dtype for a in (*args, *kwargs.values()) if isinstance(a, Tensor)}
            if dtypes.float32 not in types:
                given = ()

        def cast(a: Tensor | float | tuple | None) -> Any:
            return self._one(a, wanted, given) if isinstance(a, Tensor) else a

        args, kwargs = tuple(map(cast, args)), {k: cast(a) for k, a in kwargs.items()}
        with casting(None):
            return fn(*args, **kwargs)

    def lower_state(self, value: object) -> Any:
        """States of cells, also in a tuple, in the lower type; on the CPU as they are."""
        return value if self.kind == "cpu" else self.lower(value)

    def lower(self, value: object) -> Any:
        """Tensors, also in a tuple, in the lower type."""
        if isinstance(value, tuple):
            return tuple(map(self.lower, value))
        return (
            self._one(value, self.dtype, (dtypes.float32, *_LOW_TYPES))
            if isinstance(value, Tensor)
            else value
        )

    def _one(self, t: Tensor, wanted: dtypes.dtype, given: tuple) -> Tensor:
        kind = t.dtype
        if kind is wanted or kind not in given or t.device.type != self.kind:
            return t
        keep = self.cache is not None and t.is_leaf and t.requires_grad
        if not keep:
            return el.cast(t, dtype=wanted.np)
        key = (id(t), wanted, thread.grad_enabled)
        found = self.cache.get(key)  # type: ignore[union-attr]
        if found is None or found[1] != t._version or found[2] is not t.array:
            found = (el.cast(t, dtype=wanted.np), t._version, t.array, t)
            self.cache[key] = found  # type: ignore[index]
        return found[0]


class autocast:  # noqa: N801  (the field's spelling)
    """See above; also a decorator. ``dtype`` None: float16 on CUDA,
    bfloat16 on the CPU. ``enabled=False``: what is
    inside runs in its own types. ``cache_enabled``: whether casts of parameters are kept."""

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        device(device_type)  # (refuses what is no kind of device)
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        given = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._cache_enabled = given
        self._enabled = bool(enabled) and self._usable()
        self._inside: list[casting] = []

    def _usable(self) -> bool:
        """Whether there is anything to do; says why not."""
        if self.device != "cpu" and not (self.device in offered() and present(self.device)[0]):
            warn(
                f"User provided device_type of '{self.device}', but there is no such device here; "
                "autocast has no effect",
            )
            return False
        if self.fast_dtype in _LOW_TYPES:
            return True
        kind = self.device.upper()
        warn(
            f"In {kind} autocast, but the target dtype is not supported. Disabling autocast.\n"
            f"{kind} autocast only supports float16 and bfloat16; {self.fast_dtype} given"
        )
        return False

    def __enter__(self) -> autocast:
        outer = thread.autocast
        chooser = None
        if self._enabled:
            cache = None
            if self._cache_enabled:
                cache = {} if outer is None or outer.cache is None else outer.cache
            chooser = Chooser(self.device, self.fast_dtype, cache)
        block = casting(chooser)
        block.__enter__()
        self._inside.append(block)
        return self

    def __exit__(self, *exc: object) -> None:
        self._inside.pop().__exit__(*exc)

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def run(*args: object, **kwargs: object) -> Any:
            with self:
                return func(*args, **kwargs)

        return run


def autocast_types() -> tuple[str, ...]:
    """The kinds of devices that autocast has an effect on."""
    return ("cpu", *(kind for kind in offered() if present(kind)[0]))


def is_autocast_available(device_type: str) -> bool:
    """Whether ``autocast`` takes this kind of device."""
    return device_type in ("cpu", *offered())


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the calling thread is inside a block for this kind of device."""
    found = thread.autocast
    return found is not None and found.kind == device_type


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The type that products of this kind of device run in by default; inside a block, there."""
    found = thread.autocast
    if found is not None and found.kind == device_type:
        return found.dtype
    chosen: dict[str, dtypes.dtype] = current().slot(_CHOSEN, dict)
    return chosen.get(device_type) or _DEFAULTS.get(device_type, dtypes.bfloat16)


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Set it for the calling rank."""
    chosen: dict[str, dtypes.dtype] = current().slot(_CHOSEN, dict)
    chosen[device_type] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept by blocks that do not say."""
    return current().slots.get(_CACHED, True)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set it for the calling rank."""
    current().slots[_CACHED] = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of parameters that are kept."""
    found = thread.autocast
    if found is not None and found.cache:
        found.cache.clear()


def custom_fwd(
    fwd: Callable | None = None, *, device_type: str = "cuda", cast_inputs: object = None
) -> Any:
    """For ``Function.forward``: backward is to run as forward did. ``cast_inputs``: a type that
    floating tensors are given in, and inside autocast is off."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def run(*args: Any, **kwargs: object) -> Any:
        inside = is_autocast_enabled(device_type)
        args[0]._fwd_autocast = thread.autocast if inside and cast_inputs is None else None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with casting(None):
            return fwd(
                *[_as(a, cast_inputs, device_type) for a in args],
                **{k: _as(a, cast_inputs, device_type) for k, a in kwargs.items()},
            )

    return run


def _as(value: Any, dtype: object, kind: str) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_as(v, dtype, kind) for v in value)
    if isinstance(value, dict):
        return {k: _as(v, dtype, kind) for k, v in value.items()}
    fits = isinstance(value, Tensor) and value.dtype.is_floating_point
    if fits and value.device.type == kind and value.dtype is not dtypes.float64:
        return value.to(dtype)
    return value


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cuda") -> Any:
    """For ``Function.backward`` beside ``custom_fwd``."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(ctx: Any, *grads: object) -> Any:
        with casting(ctx._fwd_autocast):
            return bwd(ctx, *grads)

    return run
