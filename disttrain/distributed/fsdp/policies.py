"""Which submodules become units of their own: auto-wrap policies, under PyTorch's names.

A policy is either a function ``policy(module, recurse, nonwrapped_numel) -> bool``, asked on the
way down (``recurse=True``: look below this module?) and on the way up (``recurse=False``: wrap it,
given so many parameters that nothing below has taken?), or an object that chooses all modules at
once (``_Policy``). Choosing is apart from wrapping, which is in ``wrap``. Knows modules only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ... import nn
from ...errors import ConfigError

Chosen = dict[nn.Module, dict[str, Any]]


def always_wrap_policy(*args: object, **kwargs: object) -> bool:
    """Every submodule is wrapped."""
    return True


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[nn.Module], bool]
) -> bool:
    """The submodules for which ``lambda_fn`` is true are wrapped."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type],
) -> bool:
    """Instances of the given classes are wrapped, so that a unit is one block of a transformer."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def _wrap_module_cls_individually(
    module: nn.Module,
    module_classes: Iterable[type],
    recurse: bool,
    *args: object,
    **kwargs: object,
) -> bool:
    """Instances of the given classes are wrapped one by one."""
    return recurse or isinstance(module, tuple(module_classes))


def _or_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable]
) -> bool:
    """What any of ``policies`` wraps is wrapped."""
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
               for p in policies)  # fmt: skip


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Iterable[type] | None = None,
    exclude_wrap_modules: Iterable[type] | None = None,
) -> bool:
    """A module is wrapped once at least ``min_num_params`` elements in it belong to no unit below.

    ``force_leaf_modules``: classes below which nothing is wrapped (attention, which reads the
    parameters of its parts). ``exclude_wrap_modules``: classes that are never wrapped (lists and
    dicts of modules, which have no forward).
    """
    own: Any = size_based_auto_wrap_policy
    leaves = own.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    never = own.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    if nonwrapped_numel < min_num_params:
        return False
    return not isinstance(module, tuple(leaves if recurse else never))


_defaults: Any = size_based_auto_wrap_policy
_defaults.EXCLUDE_WRAP_MODULES = {nn.ModuleList, nn.ModuleDict}
_defaults.FORCE_LEAF_MODULES = {nn.MultiheadAttention}


class _Policy(ABC):
    """Chooses all modules of a tree at once, each with the arguments of its unit."""

    @abstractmethod
    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> Chosen:
        """The modules to wrap, each with the arguments of its unit (a dict of its own)."""


class ModuleWrapPolicy(_Policy):
    """Wraps every instance of the given classes with the root's arguments.

    Called like a function it is ``transformer_auto_wrap_policy`` for these classes.
    """

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = set(module_classes)

    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> Chosen:
        kinds: Any = tuple(self._module_classes)
        return {
            m: dict(root_kwargs)
            for m in root_module.modules()
            if m not in ignored_modules and isinstance(m, kinds)
        }

    def __call__(self, module: nn.Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._module_classes})"


class CustomPolicy(_Policy):
    """Wraps the modules for which ``lambda_fn`` gives True or a dict of arguments.

    The dict's entries take the place of the root's; False or an empty dict leaves the module.
    """

    def __init__(self, lambda_fn: Callable[[nn.Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> Chosen:
        chosen: Chosen = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            answer = self._lambda_fn(module)
            if not isinstance(answer, (bool, dict)):
                raise ConfigError(
                    "CustomPolicy: The lambda_fn passed to CustomPolicy should return False/True "
                    f"or a kwarg dict, but it returned {answer} for {type(module).__name__}"
                )
            if answer:
                chosen[module] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return chosen
