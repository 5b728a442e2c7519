"""``FlatParameter``: this rank's chunk of a unit's parameters, a leaf that optimizers train.

Knows the plan of the unit (``layout``); no unit and no communication.
"""

from __future__ import annotations

from typing import Any

from ....core import Tensor, wrap
from ....core.tensor import Size
from ....nn.parameter import Parameter
from .layout import FlatLayout

FLAT_PARAM = "_flat_param"  # the attribute of the wrapped module that holds it


class FlatParameter(Parameter):
    """One chunk of a vector of parameters. ``plan``: what the vector is made of; ``_params``: the
    parameters themselves where programs see these (``use_orig_params=True``), else None."""

    plan: FlatLayout
    _params: list[Any] | None
    _fqns: tuple[str, ...]
    _local: Any  # what a Tensor over this rank's chunk holds
    _uses_orig: bool

    @property
    def _shapes(self) -> tuple[Size, ...]:
        return tuple(Size(p.shape) for p in self.plan.pieces)

    @property
    def _numels(self) -> tuple[int, ...]:
        return tuple(p.numel for p in self.plan.pieces)

    @property
    def _is_padding_mask(self) -> tuple[bool, ...]:
        return (*(False for _ in self.plan.pieces), *((True,) if self._padding else ()))

    @property
    def _numels_with_padding(self) -> tuple[int, ...]:
        return (*self._numels, *((self._padding,) if self._padding else ()))

    @property
    def _padding(self) -> int:
        return self.plan.padded - self.plan.numel if self._uses_orig else 0

    @property
    def _sharded_size(self) -> Size:
        return Size((self.plan.chunk,))

    @property
    def _unpadded_unsharded_size(self) -> Size:
        return Size((self.plan.numel + self._padding,))

    @property
    def _local_shard(self) -> Tensor:
        return wrap(self._local)


def make_flat(
    local: Any, layout: FlatLayout, trains: bool, fqns: tuple[str, ...], uses_orig: bool
) -> FlatParameter:
    """The flat parameter over ``local``, this rank's chunk."""
    out: Any = FlatParameter(wrap(local), requires_grad=trains)
    out.plan, out._fqns, out._params = layout, fqns, None
    out._local, out._uses_orig = local, uses_orig
    return out
