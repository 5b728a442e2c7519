"""Function transforms: grad, vjp, jvp, vmap, in any composition; control flow as functions."""

from .call import functional_call
from .control_flow import cond, map, scan, while_loop  # noqa: A004
from .jacobian import hessian, jacfwd, jacrev
from .jvp import jvp
from .reverse import grad, grad_and_value, value_and_grad, vjp
from .vmap import vmap

__all__ = [
    "cond",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "map",
    "scan",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
