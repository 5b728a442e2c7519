"""The vocabulary: every primitive with all its rules, and the public functions over them."""

import importlib

from ..backends.device.platform import before_first
from ..core import Algebra, Tensor
from ..core.types.device import CPU
from . import api, descriptions, methods, names
from .api import *
from .declare import REGISTRY, primitive
from .functions import inplace, outs
from .functions.creation import create
from .functions.random import dropout
from .primitives import elementwise, linalg, quantization, reduce, views
from .primitives.moving import moved


def _sum_to(g, shape):
    """Undo broadcasting on a Tensor."""
    have = tuple(g.shape)
    lead = len(have) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and have[i + lead] != 1
    )
    return views.reshape(reduce.sum_(g, dims=dims, keepdim=False), shape=tuple(shape))


def _zeros_like(t):
    """Zeros at the level of a transform that ``t`` is of, also where ``t`` is inf or nan."""
    zeros = t.detach() * 0
    return elementwise.where(elementwise.eq(zeros, zeros), zeros, 0)


before_first(lambda: importlib.import_module(".device", __name__))
descriptions.describe(api, Tensor, linalg)
Algebra.add = elementwise.add
Algebra.sum_to = _sum_to
Algebra.cast = lambda g, kind: elementwise.cast(g, dtype=kind)
Algebra.zeros = lambda shape, kind: create.zeros(*shape, dtype=kind, device=CPU)
Algebra.zeros_like = _zeros_like
Algebra.ones_like = lambda t: _zeros_like(t) + 1
Algebra.clone = elementwise.copy
Algebra.to_host = lambda t: moved(t, CPU)
Algebra.move_graph = inplace.move_graph
Algebra.into = outs.into
