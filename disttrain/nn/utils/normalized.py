"""Weight and spectral normalisation in their older form: a hook before forward computes the weight.

``parametrizations`` has the same as parametrizations, which is to be preferred.
"""

from __future__ import annotations

from typing import Any

from ...core import no_grad
from ...errors import AutogradError, ConfigError
from ...trace import warn
from .. import functional as F
from .. import hooks
from ..parameter import Parameter, is_lazy
from .parametrizations import TRANSPOSED, as_matrix, norm_except


class _Computed:
    """A hook that computes one weight before every forward."""

    kind = ""
    name: str
    handle: Any

    def attach(self, module: Any) -> None:
        """Become the one hook of this kind for this weight."""
        if _find(module, type(self), self.name) is not None:
            raise AutogradError(
                f"Cannot register two {self.kind} hooks on the same parameter {self.name}"
            )
        if is_lazy(module._parameters.get(self.name)):
            raise ConfigError(
                f"The module passed to {self.kind} can't have uninitialized parameters. "
                f"({self.name} of {type(module).__name__} has no shape yet; run one batch through "
                "the module first)"
            )
        self.replace(module)
        self.handle = module.register_forward_pre_hook(self)

    def replace(self, module: object) -> None:
        """Put in the place of the weight what it is computed from."""
        raise NotImplementedError


def _find(module: Any, kind: type, name: str) -> Any:
    for hook in hooks.of(module, hooks.FORWARD_PRE):
        if isinstance(hook.run, kind) and hook.run.name == name:  # type: ignore[attr-defined]
            return hook.run
    return None


def _found(module: object, kind: type, text: str, name: str) -> Any:
    hook = _find(module, kind, name)
    if hook is None:
        raise ConfigError(f"{text} of '{name}' not found in {module}")
    return hook


class WeightNorm(_Computed):
    """weight = g v / |v| (Salimans and Kingma 2016)."""

    kind = "weight_norm"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: object) -> Any:
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except(v, self.dim))

    def replace(self, module: Any) -> None:
        weight = getattr(module, self.name)
        del module._parameters[self.name]
        length = Parameter(norm_except(weight.detach(), self.dim))
        module.register_parameter(self.name + "_g", length)
        module.register_parameter(self.name + "_v", Parameter(weight.detach()))
        setattr(module, self.name, self.compute_weight(module))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))

    def remove(self, module: Any) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        for end in ("_g", "_v"):
            del module._parameters[self.name + end]
        setattr(module, self.name, Parameter(weight))
        self.handle.remove()


def weight_norm(module: object, name: str = "weight", dim: int | None = 0) -> Any:
    """As ``parametrizations.weight_norm``, which is to be used instead."""
    warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
    )
    WeightNorm(name, dim).attach(module)
    return module


def remove_weight_norm(module: object, name: str = "weight") -> Any:
    """Undo ``weight_norm``."""
    _found(module, WeightNorm, "weight_norm", name).remove(module)
    return module


class SpectralNorm(_Computed):
    """weight = original / its largest singular value (Miyato et al. 2018)."""

    kind = "spectral_norm"

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ConfigError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def compute_weight(self, module: object, do_power_iteration: bool) -> Any:
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t() @ u, dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix @ v, dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next iterations write into them
        return weight / (u @ (matrix @ v))

    def replace(self, module: Any) -> None:
        weight = module._parameters[self.name]
        if weight is None:
            raise ConfigError(
                f"`SpectralNorm` cannot be applied as parameter `{self.name}` is None"
            )
        with no_grad():
            starts = [
                F.normalize(weight.new_empty((n,)).normal_(0, 1), dim=0, eps=self.eps)
                for n in as_matrix(weight, self.dim).shape
            ]
        delattr(module, self.name)
        module.register_parameter(self.name + "_orig", weight)
        setattr(module, self.name, weight.detach())
        for end, start in zip(("_u", "_v"), starts):
            module.register_buffer(self.name + end, start)

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    def remove(self, module: Any) -> None:
        """Make the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))
        self.handle.remove()


def spectral_norm(
    module: object,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """As ``parametrizations.spectral_norm``, by a hook before forward."""
    if dim is None:
        dim = 1 if isinstance(module, TRANSPOSED) else 0
    SpectralNorm(name, n_power_iterations, dim, eps).attach(module)
    return module


def remove_spectral_norm(module: object, name: str = "weight") -> Any:
    """Undo ``spectral_norm``."""
    _found(module, SpectralNorm, "spectral_norm", name).remove(module)
    return module
