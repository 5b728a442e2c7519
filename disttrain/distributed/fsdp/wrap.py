"""Wrapping the submodules of a module that a policy chooses; ``enable_wrap`` and ``wrap``.

Goes from the leaves up, so that a unit has what the units below it have not taken. Knows what an
already wrapped module is by the classes it is given, and units not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ... import context, nn
from ...core import Tensor
from ...core.types import dtypes
from ...errors import ConfigError
from ...trace import warn
from ..collectives.nested import cast, map_tensors
from .policies import (
    Chosen,
    CustomPolicy,
    ModuleWrapPolicy,
    _or_policy,
    _Policy,
    _wrap_module_cls_individually,
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "_Policy",
    "_or_policy",
    "_recursive_wrap",
    "_wrap",
    "_wrap_module_cls_individually",
    "always_wrap_policy",
    "auto_wrap",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
    "wrap_chosen",
]


@dataclass
class _Surroundings:
    """What ``enable_wrap`` has set on this rank."""

    wrapper_cls: Callable | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)


def _surroundings() -> _Surroundings:
    return context.current().slot(__name__, _Surroundings)


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: object) -> Iterator[None]:
    """Inside the block ``wrap(module)`` gives ``wrapper_cls(module, **wrapper_kwargs)``."""
    here = _surroundings()
    if here.wrapper_cls is not None:
        raise ConfigError(
            "enable_wrap: a block of enable_wrap is entered inside another one; nested blocks are "
            "not supported, so leave the outer one first, or give wrap() other arguments"
        )
    here.wrapper_cls, here.kwargs = wrapper_cls, wrapper_kwargs
    try:
        yield
    finally:
        here.wrapper_cls, here.kwargs = None, {}


def wrap(module: nn.Module, **wrap_overrides: object) -> nn.Module:
    """``module`` wrapped as the surrounding ``enable_wrap`` says (arguments given here count more);
    outside of one ``module`` itself."""
    here = _surroundings()
    if here.wrapper_cls is None:
        return module
    return _wrap(module, here.wrapper_cls, **{**here.kwargs, **wrap_overrides})


def _wrap(module: nn.Module, wrapper_cls: Callable, **kwargs: object) -> nn.Module:
    """``wrapper_cls(module, **kwargs)``; the module's own ``_wrap_overrides`` count more."""
    overrides = module.__dict__.get("_wrap_overrides", {})
    return wrapper_cls(module, **{**kwargs, **overrides})


def _recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Callable,
    wrapper_cls: Callable,
    ignored_modules: set[nn.Module],
    ignored_params: set[Tensor],
    only_wrap_children: bool = False,
    **kwargs: object,
) -> tuple[nn.Module, int]:
    """Ask a function policy from ``module`` down; gives what stands in its place now, and how many
    elements of its parameters belong to units."""
    if isinstance(wrapper_cls, type):
        for name, child in module.named_modules():
            if child not in ignored_modules and isinstance(child, wrapper_cls):
                raise AssertionError(
                    f"_recursive_wrap: {name or 'the module'} is already wrapped by {wrapper_cls}"
                )
    ignored = {id(p) for p in ignored_params}
    done: dict[nn.Module, tuple[nn.Module, int]] = {}

    def visit(module: nn.Module, itself: bool) -> tuple[nn.Module, int]:
        if module not in done:
            done[module] = decide(module, itself)
        return done[module]

    def decide(module: nn.Module, itself: bool) -> tuple[nn.Module, int]:
        total = sum(p.numel() for p in module.parameters() if id(p) not in ignored)
        if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=total):
            return module, 0
        below: dict[nn.Module, int] = {}
        for name, child in list(module._modules.items()):
            if child is not None and child not in ignored_modules:
                new, below[child] = visit(child, True)
                if new is not child:
                    setattr(module, name, new)
        taken = sum(below.values())
        rest = total - taken
        if itself and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=rest):
            return _wrap(module, wrapper_cls, **kwargs), total
        return module, taken

    return visit(module, not only_wrap_children)


def auto_wrap(
    root: nn.Module,
    policy: Callable[..., Any] | CustomPolicy | ModuleWrapPolicy,
    ignored_modules: set[nn.Module],
    ignored_params: Iterable[Tensor],
    kwargs: dict[str, Any],
    wrapper_cls: type,
) -> None:
    """Wrap what ``policy`` chooses below ``root`` (not ``root`` itself) in ``wrapper_cls``.

    ``kwargs``: the root's arguments, without the policy. Under mixed precision the module classes
    that it ignores (batch norms) become units in their own types. Raises ``ConfigError`` where
    something is wrapped already, or where a unit would mix frozen and trained parameters in one
    flat one.
    """
    _check_fresh(root, wrapper_cls)
    precision = kwargs.get("mixed_precision")
    spared: Any = ()
    if precision is not None:
        spared = tuple(precision._module_classes_to_ignore)
        _keep_own_types(root, spared, ignored_modules)
    params = set(ignored_params)
    if not isinstance(policy, _Policy):
        if spared:
            policy = _either(policy, spared)
        _recursive_wrap(root, policy, wrapper_cls, ignored_modules, params,
                        only_wrap_children=True, **kwargs)  # fmt: skip
        return
    chosen = policy._run_policy(root, ignored_modules, kwargs)
    for module in root.modules() if spared else ():
        if isinstance(module, spared) and module not in ignored_modules:
            chosen[module] = {**chosen.get(module, kwargs), "mixed_precision": None}
    check_frozen(root, chosen, params, bool(kwargs.get("use_orig_params")))
    wrap_chosen(root, chosen, wrapper_cls)


def _either(policy: Callable, kinds: tuple[type, ...]) -> Callable:
    """What ``policy`` wraps, and every instance of ``kinds``."""

    def both(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
        if recurse or isinstance(module, kinds):
            return True
        return policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)

    return both


def _check_fresh(root: nn.Module, wrapper_cls: type) -> None:
    for name, module in root.named_modules():
        if isinstance(module, wrapper_cls) or "_fsdp_unit" in module.__dict__:
            raise ConfigError(
                "FSDP auto wrapping requires modules to not already have FSDP applied but found "
                f"{name} in\n{root}"
            )


def wrap_chosen(root: nn.Module, chosen: Chosen, wrapper_cls: Callable) -> None:
    """Put the wrapped module into the place of each chosen one, leaves first. A module that stands
    in several places is wrapped once."""
    done: dict[nn.Module, nn.Module] = {}
    for _, module in post_order(root):
        for name, child in list(module._modules.items()):
            if child is None or child is root or child not in chosen:
                continue
            if child not in done:
                done[child] = wrapper_cls(child, **chosen[child])
            setattr(module, name, done[child])


def post_order(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules of a tree with their names, children before parents; each once."""
    out: list[tuple[str, nn.Module]] = []
    seen = {root}

    def visit(name: str, module: nn.Module) -> None:
        for child_name, child in module.named_children():
            if child not in seen:
                seen.add(child)
                visit(f"{name}.{child_name}" if name else child_name, child)
        out.append((name, module))

    visit("", root)
    return out


def check_frozen(
    root: nn.Module, units: Iterable[nn.Module], ignored: Iterable[Tensor], use_orig_params: bool
) -> None:
    """Tell of units that would mix frozen and trained parameters: an error where they become one
    flat parameter, a warning where they keep theirs (their gradients take memory all the same)."""
    wrapped, left_out = set(units), {id(p) for p in ignored}
    own: dict[nn.Module, list[tuple[str, Tensor]]] = {}
    for name, module in post_order(root):
        mine = [(f"{name}.{n}" if name else n, p)
                for n, p in module.named_parameters(recurse=False)
                if id(p) not in left_out]  # fmt: skip
        for _, child in module.named_children():
            if child not in wrapped:
                mine += own.get(child, [])
        own[module] = mine
        if module not in wrapped:
            continue
        trained = [n for n, p in mine if p.requires_grad]
        frozen = [n for n, p in mine if not p.requires_grad]
        if trained and frozen:
            _tell_mixed(name, trained, frozen, use_orig_params)


def _tell_mixed(name: str, trained: list[str], frozen: list[str], use_orig_params: bool) -> None:
    text = f"{name} has both parameters with requires_grad=True and False. "
    end = (
        "If possible, wrap the frozen parameters with FSDP separately.\n"
        f"The following parameters have requires_grad=True:\n{trained}\n"
        f"The following parameters have requires_grad=False:\n{frozen}"
    )
    if not use_orig_params:
        raise ConfigError(
            f"{text}FSDP does not support wrapping such modules when use_orig_params=False. {end}"
        )
    warn(
        f"{text}We do not recommend wrapping such modules since the gradient memory usage will be "
        f"higher than expected. {end}",
    )


def _keep_own_types(root: nn.Module, kinds: tuple, ignored: set[nn.Module]) -> None:
    """Let modules of ``kinds`` compute in float32 inside a unit of lower precision: they become
    units without mixed precision, whose floating inputs come in float32 and whose outputs leave in
    the type that came."""
    found = [m for m in root.modules() if isinstance(m, kinds) and m not in ignored]
    for module in found:
        module.__dict__["_wrap_overrides"] = {"mixed_precision": None}
        _cast_around(module)
    if found:
        names = {type(m) for m in found}
        warn(
            "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the "
            f"wrapped module has submodules of type:\n{names}\nThese modules will be wrapped as "
            "separate FSDP instances with mixed precision disabled.",
        )


def _cast_around(module: nn.Module) -> None:
    came: list[Any] = []

    def widen(t: Tensor) -> Any:
        if t.dtype.is_floating_point and t.dtype is not dtypes.float32:
            came.append(t.dtype)
            return t.to(dtypes.float32)
        return t

    def before(mod: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        came.clear()
        return map_tensors(widen, args), map_tensors(widen, kwargs)

    def after(mod: nn.Module, args: tuple, output: Tensor) -> Any:
        if not came:
            return output
        return cast(output, came[0].np)

    module.register_forward_pre_hook(before, prepend=False, with_kwargs=True)
    module.register_forward_hook(after, prepend=False)
