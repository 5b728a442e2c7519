"""Pruning: a parameter is multiplied by a mask of zeros and ones before every forward.

Of a pruned ``weight`` the module has the parameter ``weight_orig``, the buffer ``weight_mask`` and,
as an attribute, their product; ``remove`` makes the product the parameter. What is pruned several
times has one hook, a ``PruningContainer``, each method of which prunes what those before it left.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from ... import ops
from ...core import Tensor
from ...errors import ConfigError
from .. import hooks


class BasePruningMethod(ABC):
    """One way to prune; ``compute_mask(t, default_mask)`` says what is left of ``t``, of which
    ``default_mask`` was left before.

    ``PRUNING_TYPE``: "unstructured" (elements of what is left), "structured" (channels of what is
    left) or "global" (of the whole).
    """

    PRUNING_TYPE: str = "global"
    _tensor_name: str

    def __call__(self, module: Any, inputs: object) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, of ``t``'s shape."""

    def apply_mask(self, module: Any) -> Tensor:
        """The product of the original parameter and the mask."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:  # fmt: skip
        """Prune ``module``'s parameter ``name`` by a method of these arguments. What is least
        important, by ``importance_scores`` (None: the parameter itself), goes first."""
        found = _hook(module, name)
        method = cls(*args, **kwargs)
        method._tensor_name = name
        seen = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != seen.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        scores = seen if importance_scores is None else importance_scores
        if found is None:
            before, whole = ops.ones_like(seen), method
        else:
            before = getattr(module, name + "_mask").detach().clone()
            whole = found if isinstance(found, PruningContainer) else PruningContainer(found)
            whole.add_pruning_method(method)
        mask = whole.compute_mask(scores, default_mask=before)
        if found is None:
            original = module._parameters[name]
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
        else:
            hooks.drop(module, hooks.FORWARD_PRE, found)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, whole.apply_mask(module))
        module.register_forward_pre_hook(whole)
        return whole

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """``t`` times its mask; no module is concerned."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        before = ops.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Any) -> None:
        """What is left becomes the parameter; masks and the original go."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before it can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _hook(module: Any, name: str) -> BasePruningMethod | None:
    for hook in hooks.of(module, hooks.FORWARD_PRE):
        run = hook.run
        if isinstance(run, BasePruningMethod) and run._tensor_name == name:
            return run
    return None


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter, one after another."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """One more, for the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        own = getattr(self, "_tensor_name", None)
        if method is not None and own != method._tensor_name:
            raise ConfigError(
                "Can only add pruning methods acting on the parameter named "
                f"'{own}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods = (*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What the last method leaves of what is left."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        left = _left(method, t, mask)
        new = mask.detach().clone()
        new[left] = method.compute_mask(t[left], default_mask=mask[left]).to(mask.dtype)
        return new


def _left(method: Any, t: Tensor, mask: Tensor) -> Any:
    """Which part of ``t`` a method sees, as an index."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "structured":
        if not hasattr(method, "dim"):
            raise AttributeError(
                "Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim`"
            )
        dim = method.dim % t.ndim
        others = [d for d in range(t.ndim) if d != dim]
        return (slice(None),) * dim + (mask.sum(dim=others) != 0,)
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.ndim
    raise ConfigError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")


# --- methods ----------------------------------------------------------------------------------
class Identity(BasePruningMethod):
    """Prunes nothing: all masks are ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What there was."""
        return default_mask


class _Elements(BasePruningMethod):
    """``amount`` elements: a number, or a share of all."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Without those that are chosen."""
        count = _compute_nparams_toprune(self.amount, t.numel())
        _validate_pruning_amount(count, t.numel())
        mask = default_mask.clone()
        if count:
            flat = mask.reshape(-1)
            flat[self.chosen(t.detach(), count)] = 0
            mask = flat.reshape(mask.shape)
        return mask

    def chosen(self, t: Tensor, count: int) -> Tensor:
        """Which places of the flattened ``t`` go."""
        raise NotImplementedError


class RandomUnstructured(_Elements):
    """Elements that are drawn."""

    def chosen(self, t: Tensor, count: int) -> Tensor:
        """Any."""
        return ops.randperm(t.numel(), device=t.device)[:count]


class L1Unstructured(_Elements):
    """The smallest elements."""

    def chosen(self, t: Tensor, count: int) -> Tensor:
        """The smallest."""
        return ops.topk(t.abs().reshape(-1), count, largest=False).indices


class _Channels(BasePruningMethod):
    """``amount`` channels of dimension ``dim``: a number, or a share of all."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Without those whose marks are lowest."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        channels = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, channels)
        _validate_pruning_amount(count, channels)
        if not count:
            return default_mask
        kept = ops.topk(self.marks(t.detach()), channels - count).indices
        mask = ops.zeros_like(t)
        mask[(slice(None),) * (self.dim % t.ndim) + (kept,)] = 1
        return mask * default_mask.to(mask.dtype)

    def marks(self, t: Tensor) -> Tensor:
        """One number for each channel."""
        raise NotImplementedError


class RandomStructured(_Channels):
    """Channels that are drawn."""

    def marks(self, t: Tensor) -> Tensor:
        """Any."""
        return ops.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Channels):
    """The channels of smallest ``n``-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def marks(self, t: Tensor) -> Tensor:
        """The norms."""
        return _compute_norm(t, self.n, self.dim)


class CustomFromMask(BasePruningMethod):
    """What a given mask leaves."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask where there was something."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"a mask of shape {list(self.mask.shape)} given for {list(default_mask.shape)}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


# --- functions --------------------------------------------------------------------------------
def identity(module: Any, name: str) -> Any:
    """Prune nothing of the parameter; as a beginning."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prune ``amount`` (a number, or a share) elements that are drawn."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Any, name: str, amount: float, importance_scores: Tensor | None = None
) -> Any:
    """Prune the ``amount`` smallest elements."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prune ``amount`` channels of ``dim`` that are drawn."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int,
    importance_scores: Tensor | None = None,
) -> Any:  # fmt: skip
    """Prune the ``amount`` channels of ``dim`` whose ``n``-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune by a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune (module, name) pairs as if all were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores is not of type dict")
    tensors = [getattr(module, name) for module, name in pairs]
    seen = [scores.get(pair, t) for pair, t in zip(pairs, tensors, strict=True)]
    before = [
        getattr(module, name + "_mask", ops.ones_like(t))
        for (module, name), t in zip(pairs, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    method._tensor_name = "all"
    flat = [ops.cat([t.reshape(-1) for t in several]) for several in (seen, before)]
    mask = PruningContainer(method).compute_mask(flat[0], default_mask=flat[1])
    parts = mask.split([t.numel() for t in tensors])
    for (module, name), t, part in zip(pairs, tensors, parts, strict=True):
        custom_from_mask(module, name, part.reshape(t.shape))


def remove(module: Any, name: str) -> Any:
    """What is left of the parameter becomes the parameter."""
    method = _hook(module, name)
    if method is None:
        raise ConfigError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    method.remove(module)
    hooks.drop(module, hooks.FORWARD_PRE, method)
    return module


def is_pruned(module: Any) -> bool:
    """Whether a module inside has a parameter that is pruned."""
    return any(
        isinstance(hook.run, BasePruningMethod)
        for part in module.modules()
        for hook in hooks.of(part, hooks.FORWARD_PRE)
    )


# --- checks -----------------------------------------------------------------------------------
def _validate_pruning_amount_init(amount: Any) -> None:
    real, whole = isinstance(amount, numbers.Real), isinstance(amount, numbers.Integral)
    if not real:
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not whole and amount > 1):
        raise ConfigError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    whole = isinstance(amount, numbers.Integral)
    if whole and amount > tensor_size:
        raise ConfigError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _validate_structured_pruning(t: Tensor) -> None:
    if t.ndim <= 1:
        raise ConfigError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {tuple(t.shape)} with {t.ndim} dims"
        )


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if dim >= t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {tuple(t.shape)}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    return ops.norm(t, p=n, dim=[d for d in range(t.ndim) if d != dim % t.ndim])


__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]
