"""Function transforms: grad, vjp, jvp, vmap, in any composition; collectives over named axes;
control flow as functions."""

from .axes import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    psum,
    psum_scatter,
    pvary,
)
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
from .spread import spread
from .vmap import vmap

__all__ = [
    "all_gather",
    "all_to_all",
    "associative_scan",
    "axis_index",
    "axis_size",
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
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
    "pvary",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "scan",
    "spread",
    "stack_module_state",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
