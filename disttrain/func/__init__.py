"""Function transforms: grad, vjp, jvp, vmap, in any composition."""

from .call import functional_call
from .jacobian import hessian, jacfwd, jacrev
from .jvp import jvp
from .reverse import grad, grad_and_value, value_and_grad, vjp
from .vmap import vmap

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "value_and_grad",
    "vjp",
    "vmap",
]
