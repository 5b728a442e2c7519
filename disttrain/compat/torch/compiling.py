"""``torch.compiler``, and what programs touch of ``torch._dynamo`` and ``torch._inductor``.

Capture runs a program as it is, so it is never "compiling", and there is nothing that a function
would have to be kept from. Settings of PyTorch's own compiler have no meaning here: they can be set
and read, and the first write of each is told.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...compile import Graph
from ...compile.compiled import compile as compile_
from ...compile.modules import Twin
from ...compile.questions import question
from ...compile.sizes.dynamic import mark_dynamic, mark_static, maybe_mark_dynamic
from ...compile.stance import set_stance
from ...errors import CaptureError
from ...func import control_flow
from ...trace import warn
from ..publish import Shim

# What PyTorch 2.13 says unless told otherwise, of those that programs read.
_DYNAMO = {
    "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256,
    "allow_rnn": False, "assume_static_by_default": True, "automatic_dynamic_shapes": True,
    "cache_size_limit": 8, "capture_dynamic_output_shape_ops": False,
    "capture_func_transforms": True, "capture_scalar_outputs": False, "compiled_autograd": False,
    "disable": False, "dynamic_shapes": True, "error_on_recompile": False,
    "force_parameter_static_shapes": True, "guard_nn_modules": True,
    "inline_inbuilt_nn_modules": True, "numpy_default_float": "float64", "optimize_ddp": True,
    "recompile_limit": 8, "specialize_int": False, "suppress_errors": False, "trace_numpy": True,
    "verbose": False,
}  # fmt: skip
_INDUCTOR = {
    "autotune_local_cache": True, "coordinate_descent_tuning": False, "cpp_wrapper": False,
    "debug": False, "epilogue_fusion": True, "fallback_random": False,
    "force_disable_caches": False, "freezing": False, "fx_graph_cache": True,
    "max_autotune": False, "max_autotune_gemm": False, "reorder_for_locality": True,
    "size_asserts": True, "split_reductions": True,
}  # fmt: skip
_FUNCTORCH = {
    "activation_memory_budget": 1.0, "debug_assert": False, "donated_buffer": False,
    "functionalize_rng_ops": False,
}  # fmt: skip


_BUDGET = "activation_memory_budget"


class Config(Shim):
    """A module of settings; all but one have no meaning here."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        super().__init__(name)
        vars(self).update(values, _told=set())

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in (*self._told, _BUDGET):
            self._told.add(name)
            warn(f"{self.__name__}.{name} has no effect: disttrain's compiler has no such setting")
        vars(self)[name] = value

    @contextlib.contextmanager
    def patch(self, *given: Any, **values: Any) -> Iterator[None]:
        """Inside, settings are others: ``patch("name", value)``, of a dict, or by keywords."""
        if len(given) == 2:
            values = {given[0]: given[1], **values}
        elif given:
            values = {**given[0], **values}
        before = {n: vars(self)[n] for n in values if n in vars(self)}
        for name, value in values.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name in values:
                vars(self).pop(name)
            vars(self).update(before)

    def save_config(self) -> bytes:
        """Nothing: no setting has an effect."""
        return b""


FUNCTORCH = Config("torch._functorch.config", _FUNCTORCH)


def compile(model: Any = None, **words: Any) -> Any:  # noqa: A001  (PyTorch's name)
    """``disttrain.compile`` with the budget of memory that ``torch._functorch.config`` has now."""
    budget = getattr(FUNCTORCH, _BUDGET)
    if budget != 1 and words.get("mode") is None:
        words["options"] = {_BUDGET: budget, **(words.get("options") or {})}
    return compile_(model, **words)


class CompileCounter:
    """A backend that counts the graphs that it is given, and their operations."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.frame_count = self.op_count = 0
        self.graphs: list[Graph] = []

    def __call__(self, graph: Graph, inputs: list) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += len(graph.instructions)
        self.graphs.append(graph)
        return graph.run


@dataclass
class ExplainOutput:
    """What became of a function that was called once: its graphs, and why it is not one."""

    graphs: list[Graph] = field(default_factory=list)
    break_reasons: list[str] = field(default_factory=list)

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        return sum(len(graph.instructions) for graph in self.graphs)

    def __str__(self) -> str:
        return (
            f"Graph Count: {self.graph_count}\nGraph Break Count: {self.graph_break_count}\n"
            f"Op Count: {self.op_count}\nBreak Reasons: {self.break_reasons}\n"
            + "\n".join(map(str, self.graphs))
        )


def explain(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """``explain(fn)(*args)``: call it once, compiled, and tell what became of it."""

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        made = compile(fn)
        run = getattr(made, "forward", made)
        made(*args, **kwargs)
        steps = (ins for graph in run.graphs for ins in graph.instructions)
        asked = [f"a number is read: {s.params['seen']}" for s in steps if s.prim is question]
        return ExplainOutput(run.graphs, [*run.eager.values(), *asked])

    return explained(*args, **kwargs) if args or kwargs else explained


def optimize(backend: object = "inductor", *, nopython: bool = False, **words: Any) -> Any:
    """The decorator that ``compile`` was before it had that name."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, **words)


def _as_it_is(fn: object = None, recursive: bool = True, **_words: object) -> Any:
    return (lambda f: f) if fn is None else fn


def _nothing(*_args: object, **_words: object) -> None:
    """What the capture of a program that runs as it is has no use for."""


def _never() -> bool:
    return False


def list_backends(exclude_tags: object = ()) -> list[str]:
    """Those that mean something of their own here."""
    return ["cudagraphs", "inductor"]


_TOLD = {
    "allow_in_graph": _as_it_is,
    "assume_constant_result": _as_it_is,
    "disable": _as_it_is,
    "is_compiling": _never,
    "list_backends": list_backends,
    "reset": _nothing,
}


def _control_flow() -> dict[str, Shim]:
    """Control flow as functions: in one module together, and in one each (functions first, as
    attributes, where both have a name)."""
    whole = "torch._higher_order_ops"
    names = ("cond", "while_loop", "scan", "map", "associative_scan")
    parts = {f"{whole}.{n}": Shim(f"{whole}.{n}").take(control_flow, [n]) for n in names}
    return {whole: Shim(whole).take(control_flow, names), **parts}


def _check_with(
    error: type[Exception], cond: object, message: Callable[[], object] | None = None
) -> None:
    """Raise ``error`` unless ``cond`` is true."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error("Expected cond to be True, but got False" if message is None else message())


def _check_is_size(i: int, message: object = None, *, max: int | None = None) -> None:  # noqa: A002
    """Raise unless ``i`` may be a size, of at most ``max``."""
    if not (0 <= i and (max is None or i <= max)):
        raise RuntimeError(f"a size is needed, {i} given" if message is None else message)


def _check_tensor_all(
    cond: Any, message: Callable[[], object] | None = None, error: type[Exception] = RuntimeError
) -> None:
    """Raise unless all of ``cond``, a tensor of booleans, is true."""
    _check_with(error, bool(cond.all()), message)


def checks() -> dict[str, Callable[..., None]]:
    """What programs say of numbers, with which PyTorch's compiler reasons: here they are checked,
    and captured as any other decision is."""
    kinds = {"": RuntimeError, "_index": IndexError, "_value": ValueError, "_type": TypeError,
             "_not_implemented": NotImplementedError}  # fmt: skip
    return {
        **{f"_check{end}": functools.partial(_check_with, e) for end, e in kinds.items()},
        "_check_with": _check_with, "_check_is_size": _check_is_size,
        "_check_tensor_all": _check_tensor_all,
    }  # fmt: skip


def modules() -> dict[str, Shim]:
    """By name."""
    marks = "mark_static_address mark_unbacked"
    dynamo = Shim("torch._dynamo").give(
        **_TOLD, **dict.fromkeys(marks.split(), _nothing), disallow_in_graph=_as_it_is,
        explain=explain, mark_dynamic=mark_dynamic, mark_static=mark_static,
        maybe_mark_dynamic=maybe_mark_dynamic, forbid_in_graph=_as_it_is,
        graph_break=_nothing, optimize=optimize, set_stance=set_stance,
        OptimizedModule=Twin, reset_code_caches=_nothing, run=_as_it_is,
    )  # fmt: skip
    faults = dict.fromkeys(
        "BackendCompilerFailed InternalTorchDynamoError TorchDynamoException Unsupported "
        "TorchRuntimeError UserError".split(),
        CaptureError,
    )
    return {
        "torch.compiler": Shim("torch.compiler").give(
            **_TOLD, compile=compile, cudagraph_mark_step_begin=_nothing,
            is_dynamo_compiling=_never, is_exporting=_never, nested_compile_region=_as_it_is,
            set_stance=set_stance, get_default_backend=lambda: "inductor", wrap_numpy=_as_it_is,
        ),
        **_control_flow(),
        "torch._dynamo": dynamo,
        "torch._dynamo.config": Config("torch._dynamo.config", _DYNAMO),
        "torch._dynamo.eval_frame": Shim("torch._dynamo.eval_frame").give(
            OptimizedModule=Twin
        ),
        "torch._dynamo._trace_wrapped_higher_order_op": Shim(
            "torch._dynamo._trace_wrapped_higher_order_op"
        ).give(TransformGetItemToIndex=contextlib.nullcontext),
        "torch._dynamo.exc": Shim("torch._dynamo.exc").give(**faults),
        "torch._dynamo.testing": Shim("torch._dynamo.testing").give(CompileCounter=CompileCounter),
        "torch._dynamo.utils": Shim("torch._dynamo.utils").give(counters=defaultdict(Counter)),
        "torch._inductor": Shim("torch._inductor"),
        "torch._inductor.config": Config("torch._inductor.config", _INDUCTOR),
        "torch._functorch": Shim("torch._functorch"),
        "torch._functorch.config": FUNCTORCH,
    }  # fmt: skip


__all__ = ["CompileCounter", "Config", "ExplainOutput", "checks", "compile", "explain", "modules"]
