"""Hooks of a Module: where they are kept and how a call with hooks runs.

``_hooks`` of a module maps a kind to its hooks in order of call; a module without any that concern
calls has ``_hooks = None`` and its calls never come here. Hooks of state dicts are kept apart, in
``_state_hooks``. Knows a module only by ``forward`` and these two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..context import thread
from ..core import Tensor
from ..core.hooks import HookDict, HookHandle
from ..ops.declare import primitive
from ..ops.primitives.batching import fronted

FORWARD_PRE, FORWARD = "forward_pre", "forward"
BACKWARD_PRE, BACKWARD = "full_backward_pre", "full_backward"
STATE_PRE, STATE_POST, STATE_INNER = "state_dict_pre", "state_dict_post", "state_dict_inner"
LOAD_PRE, LOAD_POST = "load_state_dict_pre", "load_state_dict_post"
CALL_KINDS = (FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD)


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
    if getattr(module, store) is None:
        setattr(module, store, {})
    hooks = getattr(module, store).setdefault(kind, HookDict())
    before = list(hooks.items()) if prepend else []
    handle = HookHandle(hooks, hook)
    for key, value in before:
        del hooks[key]
        hooks[key] = value
    return handle


def of(module: Any, kind: str) -> list[Hook]:
    """The hooks of one kind, in order; a copy, so that hooks may remove themselves."""
    hooks = getattr(module, _store(kind))
    return list(hooks[kind].values()) if hooks is not None and kind in hooks else []


def _store(kind: str) -> str:
    return "_hooks" if kind in CALL_KINDS else "_state_hooks"


def run_all(module: Any, kind: str, *args: Any) -> None:
    """Call every hook of ``kind`` with ``args``."""
    for hook in of(module, kind):
        hook.run(*args)


def call(module: Any, args: tuple, kwargs: dict) -> Any:
    """``module.forward`` with the module's hooks around it."""
    if not any(module._hooks.values()):
        module._hooks = None
        return module.forward(*args, **kwargs)
    pending = [h for h in of(module, FORWARD) if h.always]
    try:
        return _call(module, args, kwargs, pending)
    except Exception:
        for hook in pending:
            try:
                _forward_hook(module, hook, args, kwargs, None)
            except Exception as error:
                warnings.warn(
                    f"{type(module).__name__}: an always_call forward hook raised while another "
                    f"error was on its way, and is ignored: {error!r}",
                    stacklevel=3,
                )
        raise


def _call(module: Any, args: tuple, kwargs: dict, pending: list[Hook]) -> Any:
    for hook in of(module, FORWARD_PRE):
        args, kwargs = _pre_hook(module, hook, args, kwargs)
    backward = None
    if thread.grad_enabled and (of(module, BACKWARD) or of(module, BACKWARD_PRE)):
        backward = _BackwardHooks(module)
        args = backward.enter(args)
    result = module.forward(*args, **kwargs)
    for hook in of(module, FORWARD):
        if hook in pending:
            pending.remove(hook)
        changed = _forward_hook(module, hook, args, kwargs, result)
        if changed is not None:
            result = changed
    return result if backward is None else backward.leave(result)


def _pre_hook(module: Any, hook: Hook, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
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
    raise TypeError(
        f"{type(module).__name__}: a forward pre-hook with kwargs must return None or a tuple of "
        f"(new args, new kwargs); it returned {type(changed).__name__}"
    )


def _forward_hook(module: Any, hook: Hook, args: tuple, kwargs: dict, result: Any) -> Any:
    if hook.with_kwargs:
        return hook.run(module, args, kwargs, result)
    return hook.run(module, args, result)


# The identity on several tensors: one node through which all their gradients pass together.
_boundary = primitive(
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
    """One call of a module that has backward hooks: nodes before and after it call them."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.num_inputs = 0
        self.grad_outputs: tuple = ()
        self.inputs_differentiable = False

    def enter(self, args: tuple) -> tuple:
        """Pass the inputs through a node whose gradients are the module's ``grad_input``."""
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.num_inputs = len(args)
        through, node = self._boundary([args[i] for i in positions])
        if node is None:
            return args
        self.inputs_differentiable = True
        node.register_hook(lambda grads, _: self._after(grads, positions))
        out = list(args)
        for i, t in zip(positions, through, strict=True):
            out[i] = t
        return tuple(out)

    def leave(self, result: Any) -> Any:
        """Pass the outputs through a node whose gradients are ``grad_output``."""
        leaves, rebuild = tree.flatten(result)
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        through, node = self._boundary([leaves[i] for i in positions])
        if node is None:
            return result
        node.register_prehook(self._before)
        for i, t in zip(positions, through, strict=True):
            leaves[i] = t
        return rebuild(leaves)

    @staticmethod
    def _boundary(tensors: list[Tensor]) -> tuple[Any, Any]:
        if not any(t.requires_grad for t in tensors):
            return tensors, None
        through = _boundary(*tensors)
        for t, source in zip(through, tensors, strict=True):
            t._st = source.storage_cell()  # in-place writes to either are seen by both
            t._gen = t._st.gen
        return through, next(t.grad_fn for t in through if t.grad_fn is not None)

    def _before(self, grads: tuple) -> tuple:
        for hook in of(self.module, BACKWARD_PRE):
            changed = hook.run(self.module, grads)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        self.grad_outputs = grads
        if not self.inputs_differentiable:
            self._run((None,) * self.num_inputs)
        return grads

    def _after(self, grads: tuple, positions: list[int]) -> tuple:
        given: list[Any] = [None] * self.num_inputs
        for i, g in zip(positions, grads, strict=True):
            given[i] = g
        changed = self._run(tuple(given))
        return tuple(changed[i] for i in positions)

    def _run(self, grads: tuple) -> tuple:
        for hook in of(self.module, BACKWARD):
            changed = hook.run(self.module, grads, self.grad_outputs)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(grads):
                raise TypeError(
                    f"{type(self.module).__name__}: a backward hook returned {len(changed)} "
                    f"gradients; {len(grads)} are needed, one per input"
                )
            grads = changed
        return grads
