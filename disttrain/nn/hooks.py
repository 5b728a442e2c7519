"""Hooks of a Module: where they are kept and how a call with hooks runs.

``_hooks`` of a module maps a kind to its hooks in order of call; a module without any that concern
calls has ``_hooks = None`` and its calls never come here. Hooks of state dicts are kept apart, in
``_state_hooks``. Hooks of all modules belong to the rank (``everywhere``); from the first of them
on, calls of all modules come here, because ``Module._hooks`` itself is then not None. Knows a
module only by ``forward`` and these.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np

from ..context import thread
from ..core import Tensor, wrap
from ..core.gate import Primitive
from ..core.node import AccumulateGrad, HookDict, HookHandle
from ..errors import AutogradError, DTypeError
from ..ops.declare import primitive
from ..ops.functions.creation import create
from ..ops.primitives.batching import fronted
from ..trace import warn

FORWARD_PRE, FORWARD = "forward_pre", "forward"
BACKWARD_PRE, BACKWARD, LAST_NODE = "full_backward_pre", "full_backward", "backward"
STATE_PRE, STATE_POST, STATE_INNER = "state_dict_pre", "state_dict_post", "state_dict_inner"
LOAD_PRE, LOAD_POST = "load_state_dict_pre", "load_state_dict_post"
CALL_KINDS = (FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD, LAST_NODE)
PARAMETER, BUFFER, MODULE = "parameter", "buffer", "module"  # registered in a module
_EVERYWHERE = "nn.hooks"  # the rank's slot for hooks of all modules


class Hook(NamedTuple):
    """A hook and how it wants to be called."""

    run: Callable
    with_kwargs: bool = False
    always: bool = False


def add(module: Any, kind: str, hook: Hook, prepend: bool = False) -> HookHandle:
    """Keep ``hook`` on ``module``; the handle takes it away again."""
    if not callable(hook.run):
        raise TypeError(
            f"{type(module).__name__}: a {kind} hook must be callable, {hook.run!r} given"
        )
    store = _store(kind)
    if module.__dict__.get(store) is None:
        module.__dict__[store] = {}
    kinds = module.__dict__[store]
    _refuse_both(kinds, kind)
    hooks = kinds.setdefault(kind, HookDict())
    before = list(hooks.items()) if prepend else []
    handle = HookHandle(hooks, hook)
    for key, value in before:
        del hooks[key]
        hooks[key] = value
    return handle


class Kept(MutableMapping):
    """The hooks of one kind of a module by their handles' numbers, under the names by which
    programs look at them and take them away: ``len(m._forward_hooks)``."""

    def __init__(self, module: Any, kind: str) -> None:
        self._module, self._kind = module, kind

    def _kinds(self) -> dict[str, HookDict]:
        return self._module.__dict__.get(_store(self._kind)) or {}

    def _found(self) -> HookDict:
        return self._kinds().get(self._kind) or HookDict()

    def __getitem__(self, key: int) -> Callable:
        return self._found()[key].run

    def __setitem__(self, key: int, run: Callable) -> None:
        handle = add(self._module, self._kind, Hook(run))
        hooks = self._found()
        hooks[key] = hooks.pop(handle.id)

    def __delitem__(self, key: int) -> None:
        del self._found()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._found()))

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(OrderedDict(self))


def kept(kind: str) -> Any:
    """The attribute of modules that has their hooks of one kind; assigned: those instead."""

    def replace(module: Any, given: Mapping) -> None:
        found, wanted = Kept(module, kind), dict(given)
        found.clear()
        found.update(wanted)

    return property(lambda module: Kept(module, kind), replace)


def add_everywhere(kind: str, hook: Hook) -> HookHandle:
    """Keep ``hook`` for all modules of this rank."""
    kinds: dict[str, HookDict] = thread.rank.slot(_EVERYWHERE, dict)
    _refuse_both(kinds, kind)
    return HookHandle(kinds.setdefault(kind, HookDict()), hook)


def set_everywhere(kind: str, hooks: Iterable[Callable]) -> None:
    """Make ``hooks`` the only ones of that kind for all modules of this rank."""
    kinds: dict[str, HookDict] = thread.rank.slot(_EVERYWHERE, dict)
    kinds.pop(kind, None)
    for run in hooks:
        add_everywhere(kind, Hook(run))


def _refuse_both(kinds: dict[str, HookDict], kind: str) -> None:
    other = {BACKWARD: LAST_NODE, LAST_NODE: BACKWARD}.get(kind)
    if other is not None and other in kinds:
        raise AutogradError(
            "Cannot use both regular backward hooks and full backward hooks on a single Module "
            "(or for all modules). Please use only one of them; register_full_backward_hook sees "
            "the module's own inputs and outputs"
        )


def of(module: Any, kind: str) -> list[Hook]:
    """The hooks of one kind, in order, those of all modules first; a copy, so that hooks may
    remove themselves."""
    hooks = module.__dict__.get(_store(kind))
    own = list(hooks[kind].values()) if hooks is not None and kind in hooks else []
    everywhere = thread.rank.slots.get(_EVERYWHERE)
    return own if everywhere is None else [*everywhere.get(kind, {}).values(), *own]


def drop(module: Any, kind: str, run: Callable) -> None:
    """Take away the hook that calls ``run``."""
    kept = (module.__dict__.get(_store(kind)) or {}).get(kind, {})
    for key in [key for key, hook in kept.items() if hook.run is run]:
        del kept[key]


def _store(kind: str) -> str:
    return "_hooks" if kind in CALL_KINDS else "_state_hooks"


def run_all(module: object, kind: str, *args: object) -> None:
    """Call every hook of ``kind`` with ``args``."""
    for hook in of(module, kind):
        hook.run(*args)


def registered(module: object, kind: str, name: str, value: object) -> Any:
    """What is registered as ``name``, after the hooks that look at registrations."""
    everywhere = thread.rank.slots.get(_EVERYWHERE)
    for hook in () if everywhere is None else [*everywhere.get(kind, {}).values()]:
        changed = hook.run(module, name, value)
        value = value if changed is None else changed
    return value


def call(module: Any, args: tuple, kwargs: dict) -> Any:
    """``module.forward`` with the module's hooks around it."""
    own = module.__dict__.get("_hooks")
    if own is not None and not any(own.values()):
        del module.__dict__["_hooks"]
        own = None
    if own is None and not any(thread.rank.slots.get(_EVERYWHERE, _NOTHING).values()):
        return module.forward(*args, **kwargs)
    pending = [h for h in of(module, FORWARD) if h.always]
    try:
        return _call(module, args, kwargs, pending)
    except Exception:
        for hook in pending:
            try:
                _forward_hook(module, hook, args, kwargs, None)
            except Exception as error:
                warn(
                    "module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error!r} "
                    f"({type(module).__name__})",
                )
        raise


_NOTHING: dict[str, HookDict] = {}


def _call(module: Any, args: tuple, kwargs: dict, pending: list[Hook]) -> Any:
    for hook in of(module, FORWARD_PRE):
        args, kwargs = _pre_hook(module, hook, args, kwargs)
    full, before = of(module, BACKWARD), of(module, BACKWARD_PRE)
    backward = _BackwardHooks(module, full, before) if full or before else None
    if backward is not None:
        args = backward.enter(args)
    result = module.forward(*args, **kwargs)
    for hook in of(module, FORWARD):
        if hook in pending:
            pending.remove(hook)
        changed = _forward_hook(module, hook, args, kwargs, result)
        if changed is not None:
            result = changed
    result = result if backward is None else backward.leave(result)
    nodes = of(module, LAST_NODE)
    if nodes:
        _hook_last_node(module, nodes, args, result)
    return result


def _pre_hook(module: object, hook: Hook, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    if not hook.with_kwargs:
        changed = hook.run(module, args)
        if changed is None:
            return args, kwargs
        return changed if isinstance(changed, tuple) else (changed,), kwargs
    changed = hook.run(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if isinstance(changed, tuple) and len(changed) == 2:
        return changed
    raise DTypeError(
        f"{type(module).__name__}: forward pre-hook must return None or a tuple of (new_args, "
        f"new_kwargs), but got {changed!r}"
    )


def _forward_hook(
    module: object, hook: Hook, args: tuple, kwargs: dict, result: Tensor | list | tuple | None
) -> Any:
    if hook.with_kwargs:
        return hook.run(module, args, kwargs, result)
    return hook.run(module, args, result)


# The identity on several tensors: one node through which all their gradients pass together.
_boundary: Primitive = primitive(
    "boundary",
    lambda *arrays: tuple(a.view() if isinstance(a, np.ndarray) else a for a in arrays),
    "",
    vjp=lambda g: g,
    jvp="linear",
    batch=lambda args, dims, params, size: (
        _boundary(*[fronted(a, d, size) for a, d in zip(args, dims, strict=True)]),
        (0,) * len(args),
    ),
    shape=lambda *arrays: [(a.shape, a.dtype) for a in arrays],
    multi=True,
    samples=lambda rng: [((rng.normal(size=(3, 4)), rng.normal(size=(2,))), {})],
)


class _BackwardHooks:
    """One call of a module that has backward hooks: nodes before and after it call them.

    Only tensors that require grad pass through the nodes. For the hooks the gradients of inputs
    are zeros where nothing comes back to a tensor, None where there is no tensor; those of outputs
    are None in both cases.
    """

    def __init__(self, module: Any, full: list[Hook], before: list[Hook]) -> None:
        self.module, self.full, self.before = module, full, before
        self.num_inputs = 0
        self.grad_outputs: tuple | None = None
        self.inputs_differentiable = False

    def enter(self, args: tuple) -> tuple:
        """Pass the inputs through a node whose gradients are the module's ``grad_input``."""
        self.num_inputs = len(args)
        out, positions, node = self._boundary(args)
        if node is None:
            return args
        self.inputs_differentiable = True
        others = [
            (i, a.meta()) for i, a in enumerate(args) if isinstance(a, Tensor) and a is out[i]
        ]
        node.run_without = _zeros_like([args[i] for i in positions])
        node.register_hook(lambda grads, _: self._after(grads, positions, others))
        return out

    def leave(self, result: object) -> Any:
        """Pass the outputs through a node whose gradients are ``grad_output``."""
        if not isinstance(result, (Tensor, tuple)):
            warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
            )
            return result
        given = result if isinstance(result, tuple) else (result,)
        out, positions, node = self._boundary(given)
        if node is None:
            return result
        node.wants_none = True
        node.register_prehook(lambda grads: self._before(grads, positions, len(given)))
        return out if isinstance(result, tuple) else out[0]

    @staticmethod
    def _boundary(values: tuple) -> tuple[tuple, list[int], Any]:
        positions = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not positions or not thread.grad_enabled:
            return values, [], None
        tensors = [values[i] for i in positions]
        through = _boundary(*tensors)
        out = list(values)
        for i, t, source in zip(positions, through, tensors, strict=True):
            t._st = source.storage_cell()  # in-place writes to either are seen by both
            t._gen = t._st.gen
            out[i] = t
        node = next(t.grad_fn for t in through if t.grad_fn is not None)
        if type(values) is tuple:
            return tuple(out), positions, node
        return type(values)(*out), positions, node  # a named tuple

    def _before(self, grads: tuple, positions: list[int], count: int) -> tuple:
        given = _spread(grads, positions, count)
        for hook in self.before:
            changed = hook.run(self.module, given)
            if changed is not None:
                given = self._checked(changed, count, "Backward pre hook", "grad_output")
        self.grad_outputs = given
        if not self.inputs_differentiable:
            self._without_inputs()
        return tuple(given[i] for i in positions)

    def _without_inputs(self) -> None:
        if self.full:
            warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients "
                f"({type(self.module).__name__})",
            )
        for hook in self.full:
            changed = hook.run(self.module, (None,) * self.num_inputs, self.grad_outputs)
            nothing = isinstance(changed, tuple) and all(g is None for g in changed)
            if changed is not None and not nothing:
                raise AutogradError(
                    f"{type(self.module).__name__}: Backward hook for Modules where no input "
                    "requires gradient should always return None or None for all gradients"
                )
        self.grad_outputs = None

    def _after(self, grads: tuple, positions: list[int], others: list) -> tuple | None:
        if self.grad_outputs is None:
            return None
        zeros = [wrap(np.zeros(*meta)) for _, meta in others]
        places = [*positions, *(i for i, _ in others)]
        given = _spread((*grads, *zeros), places, self.num_inputs)
        for hook in self.full:
            changed = hook.run(self.module, given, self.grad_outputs)
            if changed is not None:
                given = self._checked(changed, len(given), "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(given[i] for i in positions)

    def _checked(self, changed: tuple, count: int, what: str, name: str) -> tuple:
        out = changed if isinstance(changed, tuple) else (changed,)
        if len(out) != count:
            raise AutogradError(
                f"{type(self.module).__name__}: {what} returned an invalid number of {name}, got "
                f"{len(out)}, but expected {count}"
            )
        return out


def _zeros_like(tensors: list) -> Callable:
    """What gives zeros as gradients of ``tensors``."""
    places = [(t.meta(), t.device) for t in tensors]

    def run_without(as_tensors: bool) -> tuple:
        zeros = [create.zeros(shape, dtype=kind, device=at) for (shape, kind), at in places]
        return tuple([z if as_tensors else z.array for z in zeros])

    return run_without


def _spread(values: Iterable, positions: list[int], count: int) -> tuple:
    """``values`` at their positions among ``count`` places, None elsewhere."""
    out: list[Any] = [None] * count
    for i, value in zip(positions, values, strict=True):
        out[i] = value
    return tuple(out)


# --- hooks on the last node of a forward (``register_backward_hook``) ----------------------------
def _hook_last_node(
    module: Any, nodes: list[Hook], args: tuple, result: Tensor | list | tuple
) -> None:
    """Let ``nodes`` look at the gradients of the node that made the (first) output."""
    var = result
    while not isinstance(var, Tensor):
        var = next(iter(var.values())) if isinstance(var, dict) else var[0]
    grad_fn = var.grad_fn
    if grad_fn is None:
        return
    for hook in nodes:
        grad_fn.register_hook(_of_node(module, hook))
    missing = _missing_gradients(args, result, grad_fn)
    if missing:
        warn(
            f"Using non-full backward hooks on a Module that {missing} is deprecated: the hook "
            "does not see all gradients. Please use register_full_backward_hook",
            FutureWarning,
        )


def _of_node(module: object, hook: Hook) -> Callable:
    def run(grad_inputs: tuple, grad_outputs: tuple) -> Any:
        changed = hook.run(module, grad_inputs, grad_outputs)
        if changed is None:
            return None
        out = changed if isinstance(changed, tuple) else (changed,)
        if len(out) != len(grad_inputs):
            raise AutogradError(
                f"{type(module).__name__}: Backward hook returned an invalid number of "
                f"grad_input, got {len(out)}, but expected {len(grad_inputs)}"
            )
        return out

    return run


def _missing_gradients(args: tuple, result: Tensor | list | tuple, grad_fn: Any) -> str:
    """Why the last node does not stand for the whole forward; empty where it does."""
    outputs = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, Tensor) for r in outputs):
        return "does not return a single Tensor or a tuple of Tensors"
    if not all(isinstance(a, Tensor) for a in args):
        return "does not take as input a single Tensor or a tuple of Tensors"
    made_by = {r.grad_fn for r in outputs if r.grad_fn is not None}
    if len(made_by) > 1:
        return "gives outputs where outputs are generated by different autograd Nodes"
    before = {a.grad_fn for a in args if a.grad_fn is not None}
    reads = {
        node
        for node, _ in grad_fn.next_functions
        if node is not None and not isinstance(node, AccumulateGrad)
    }
    if reads != before:
        return "does more than one operation, so that the forward contains multiple autograd Nodes"
    return ""
