"""JAX's arrays for ``arrays.lifting``: their types, their weakness, failures in JAX's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....arrays.lifting import NUMBERS, Kind, Lifting, To, cast, numbered
from ....core.tensor import Tensor
from ....errors import CaptureError, DimError, DTypeError, EscapedValue, LinAlgError, ShapeError
from .. import types
from ..array import Array, wrap
from ..errors import ConcretizationTypeError
from ..tracing import is_traced

_PLAIN = {bool, int, float, complex}
_DIRECT = {("float32", float), ("float32", int), ("float64", float), ("float64", int)}
_NUMBERED: Any = {(types.named(n), k) for n, k in _DIRECT}  # a number needs no tensor
_WITH_NUMBERS = set(  # whose functions take numbers beside tensors
    "add subtract multiply true_divide divide equal not_equal less less_equal greater remainder "
    "greater_equal mod".split()
)
_VALUES = set("gcd lcm hypot spacing i0 signbit isposinf isneginf".split())  # raise ValueError


class JaxLifting(Lifting):
    """``Lifting`` of JAX's arrays."""

    own, module = Array, "jax.numpy"
    ignored = frozenset(
        "precision preferred_element_type out_sharding device kind method unique_indices copy "
        "inplace indices_are_sorted nan_policy overwrite_a overwrite_b check_finite lapack_driver "
        "unroll overwrite_data optimize".split()
    )
    cast = frozenset(
        "concatenate stack vstack hstack cross cov corrcoef linspace logspace geomspace "
        "argsort".split()
    )
    rules = {**Lifting.rules, "summed": types.summed}
    asked = staticmethod(types.asked)
    known = staticmethod(types.canonical)
    of_number = staticmethod(types.of_number)
    give = staticmethod(wrap)

    def plain(self, x: Any) -> Any:
        if x.__class__ is Array or x.__class__ in _PLAIN:
            return x
        give = getattr(x, "__jax_array__", None)
        return x if give is None else give()

    def unfit(self, where: str, x: Any, place: int) -> Exception:
        if where == "array" and x is None:
            return ValueError("None is not a valid value for jnp.array")
        if where == "array" and isinstance(x, str):
            return TypeError(
                f"Value {x!r} with dtype <U{len(x)} is not a valid JAX array type. Only arrays of "
                "numeric types are supported by JAX."
            )
        return super().unfit(where, x, place)

    def take(self, x: Any) -> tuple[Tensor, bool]:
        return x._value, x.weak_type

    def kind_of(self, x: Any, where: str, place: int = 0) -> Kind:
        if x.__class__ is Array:
            return x._value.meta()[1], x.weak_type
        return super().kind_of(x, where, place)

    def to_tensor(self, x: Any, kind: Any) -> Tensor:
        if x.__class__ is Array:
            return cast(x._value, kind)
        return cast(x, kind) if isinstance(x, Tensor) else numbered(x, kind)

    def meet(self, kinds: Sequence[Kind]) -> Kind:
        return types.result_kind(*kinds)

    def failed(self, where: str, error: Exception, xs: Sequence[Any]) -> Exception:
        first = next((x for x in xs if isinstance(x, Tensor)), None)
        if isinstance(error, (DimError, LinAlgError)):
            return ValueError(f"{where}: {error}")
        if isinstance(error, ShapeError):
            return TypeError(f"{where}: {error}")
        if isinstance(error, DTypeError) and first is not None:
            kind = ValueError if where in _VALUES else TypeError
            return kind(f"{where} does not accept dtype {first.meta()[1].name}.")
        traced = next((x for x in xs if isinstance(x, Tensor) and is_traced(x)), None)
        if not isinstance(error, CaptureError) or isinstance(error, EscapedValue) or traced is None:
            return error
        more = f"It arose in jax.numpy.{where}: how large its result is depends on values."
        return ConcretizationTypeError(wrap(traced), more)

    def misfit(self, where: str, error: Exception, tensors: Sequence[Any]) -> Exception:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors if isinstance(t, Tensor))
        return TypeError(f"{where} got incompatible shapes for broadcasting: {shapes}.")

    def binary(
        self, where: str, fn: Callable, to: To | None = None, strong: bool = False
    ) -> Callable:
        """``Lifting.binary``, quick for two arrays of a type, or one and a number."""
        slow = super().binary(where, fn, to, strong)
        direct = _NUMBERED if where in _WITH_NUMBERS else set()
        if to is not None:
            return slow

        def run(x: Any, y: Any, /) -> Array:
            if x.__class__ is Array:
                a, kind, other, weak = x._value, x._value.meta()[1], None, False
                if y.__class__ is Array:
                    if y._value.meta()[1] is kind:
                        other, weak = y._value, x.weak_type and y.weak_type
                elif (kind, y.__class__) in direct:
                    other, weak = y, x.weak_type
                if other is not None:
                    try:
                        return wrap(fn(a, other), weak and not strong)
                    except ShapeError as error:
                        raise self.misfit(where, error, (a, other)) from None
                    except DTypeError as error:
                        raise self.failed(where, error, (a,)) from None
            return slow(x, y)  # type: ignore[no-any-return]

        return self.named(run, where)  # type: ignore[no-any-return]


LIFTING = JaxLifting()
RULES = LIFTING.rules
operands, one, weak_of, given_back = (
    LIFTING.operands, LIFTING.one, LIFTING.weak_of, LIFTING.given_back
)  # fmt: skip
plain, kind_of, to_tensor, named = (
    LIFTING.plain, LIFTING.kind_of, LIFTING.to_tensor, LIFTING.named
)  # fmt: skip
unary, binary, function, table = LIFTING.unary, LIFTING.binary, LIFTING.function, LIFTING.table
__all__ = ["NUMBERS", "cast"]
