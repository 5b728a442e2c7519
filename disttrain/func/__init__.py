"""Function transforms: grad, vjp, jvp, vmap, in any composition; control flow as functions."""

from .call import functional_call
from .control_flow import (  # noqa: A004
    associative_scan,
    cond,
    fori_loop,
    map,
    scan,
    switch,
    while_loop,
)
from .ensembles import replace_all_batch_norm_modules_, stack_module_state
from .jacobian import hessian, jacfwd, jacrev
from .jvp import jvp
from .levels import debug_unwrap, functionalize
from .linearize import linearize
from .rearrange import rearrange
from .reverse import grad, grad_and_value, value_and_grad, vjp
from .vmap import vmap

__all__ = [
    "associative_scan",
    "cond",
    "debug_unwrap",
    "fori_loop",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "map",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "scan",
    "stack_module_state",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
