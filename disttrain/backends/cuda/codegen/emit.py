"""A kernel and a form as CUDA C text: a struct of arguments, and the function that takes it.

    text, fields = function(kernel, form, "softmax_0")

``unit`` puts several of them after the prelude. Pure: compiles nothing, knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...lang.kernel import Kernel, check
from .flat import Finish, Flat, fold_rows
from .forms import Field, Form, struct
from .prelude import NATIVE, prelude
from .rows import Rows


def function(kernel: Kernel, form: Form, name: str = "") -> tuple[str, list[Field]]:
    """The text of one function, called ``name``, and the fields of its struct."""
    check(kernel)
    name = name or symbol(kernel, form)
    if form.kind == "fold":
        lines, fields = fold_rows(kernel, form)
    else:
        body = {"flat": Flat, "many": Flat, "finish": Finish, "rows": Rows}[form.kind](kernel, form)
        fields = body.write()
        lines = body.lines
    bounds = f"{form.threads}, 1" if form.kind == "rows" else f"{form.threads}"
    head = f'extern "C" __global__ void __launch_bounds__({bounds})'
    text = [
        struct(f"{name}_args", fields),
        f"{head} {name}(const __grid_constant__ {name}_args a) {{",
        *_indented(lines),
        "}",
    ]
    return "\n".join(text), fields


def symbol(kernel: Kernel, form: Form) -> str:
    """The name of the function in C."""
    return f"{kernel.name}_{form.suffix}"


def unit(functions: Sequence[str], native: str = NATIVE) -> str:
    """A whole program of functions' texts."""
    return "\n".join([prelude(native), *functions, ""])


def _indented(lines: list[str]) -> list[str]:
    out, depth = [], 1
    for line in lines:
        code = line.split("//")[0]
        depth -= code.startswith("}")
        out.append("  " * depth + line)
        depth += code.count("{") - code.count("}") + code.startswith("}")
    return out
