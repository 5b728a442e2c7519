"""``state_dict`` and ``load_state_dict`` of a module. Knows nothing of files."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from ..core import Tensor, no_grad
from ..errors import DisttrainError, HookError, StateDictError
from ..trace import warn
from . import hooks
from .parameter import Parameter, is_lazy

EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What ``load_state_dict`` did not find, and what it found no place for."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class State:
    """The part of Module that gives its state out and takes it in."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _version: int = 1

    # --- out ------------------------------------------------------------------------------
    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters, persistent buffers and extra state of this module and all below, by name.

        Values share the parameters' memory and are detached, unless ``keep_vars``.
        """
        if args:
            warn(
                "Positional args are being deprecated, use kwargs instead: state_dict("
                "destination=..., prefix=..., keep_vars=...)",
                FutureWarning,
            )
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        hooks.run_all(self, hooks.STATE_PRE, self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in hooks.of(self, hooks.STATE_INNER):
            changed = hook.run(self, destination, prefix, metadata)
            destination = destination if changed is None else changed
        for hook in hooks.of(self, hooks.STATE_POST):
            if hook.run(self, destination, prefix, metadata) is not None:
                raise StateDictError(
                    f"{type(self).__name__}: state_dict post-hook must return None; it changes "
                    "the dict that it is given"
                )
        return destination

    def _own_state(self) -> dict[str, Any]:
        """Parameters and persistent buffers of this module alone."""
        own = {k: v for k, v in self._parameters.items() if v is not None}
        skip = self._non_persistent_buffers_set
        own.update((k, v) for k, v in self._buffers.items() if v is not None and k not in skip)
        return own

    def _save_to_state_dict(self, destination: OrderedDict, prefix: str, keep_vars: bool) -> None:
        for name, value in self._own_state().items():
            keep = keep_vars or is_lazy(value)
            destination[prefix + name] = value if keep else value.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        """State beside parameters and buffers, for ``state_dict``. To be overridden."""
        raise StateDictError(
            f"{type(self).__name__}: has no extra state; override get_extra_state and "
            "set_extra_state to have some"
        )

    def set_extra_state(self, state: object) -> None:
        """Take what ``get_extra_state`` gave. To be overridden together with it."""
        raise StateDictError(
            f"{type(self).__name__}: extra state found, but set_extra_state is not overridden"
        )

    # --- in -------------------------------------------------------------------------------
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy the values of ``state_dict`` into the parameters and buffers of their names.

        ``strict``: names must match exactly. ``assign``: take the tensors themselves instead of
        copying. Raises ``StateDictError`` that lists everything that does not fit.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{type(self).__name__}.load_state_dict: Expected state_dict to be dict-like, got "
                f"{type(state_dict)}."
            )
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        _load(self, OrderedDict(state_dict), "", metadata, assign, (missing, unexpected, errors))
        if strict and missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if strict and unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if errors:
            raise StateDictError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(
                    type(self).__name__, "\n\t".join(errors)
                )
            )
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries; what does not fit is appended to the lists."""
        for hook in hooks.of(self, hooks.LOAD_PRE):
            given = (state_dict, prefix, local_metadata, strict)
            rest = (missing_keys, unexpected_keys, error_msgs)
            hook.run(*((self,) if hook.with_kwargs else ()), *given, *rest)
        own = self._own_state()
        for name, param in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_one(name, key, param, state_dict[key], local_metadata)
                if problem:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)
        has_extra = type(self).set_extra_state is not State.set_extra_state
        if prefix + EXTRA in state_dict and has_extra:
            self.set_extra_state(state_dict[prefix + EXTRA])
        elif has_extra and strict:
            missing_keys.append(prefix + EXTRA)
        if strict:
            known = set(own) | ({EXTRA} if has_extra else set())
            for key in state_dict:
                if key.startswith(prefix) and not _belongs(key[len(prefix) :], known, self):
                    unexpected_keys.append(key)

    def _load_one(
        self, name: str, key: str, param: Any, value: object, metadata: dict
    ) -> str | None:
        """Put ``value`` into ``param``; what went wrong, as text."""
        if not isinstance(value, Tensor):
            return (
                f'While copying the parameter named "{key}", expected a Tensor from checkpoint but '
                f"received {type(value)}"
            )
        if is_lazy(param):
            if is_lazy(value):
                return None
            param.materialize(value.shape)
        elif is_lazy(value):
            return (
                f'While copying the parameter named "{key}": the shape of an uninitialized '
                "parameter, which stands in the checkpoint, is not known; run one batch through "
                "the lazy module before saving it"
            )
        elif tuple(param.shape) == () and tuple(value.shape) == (1,):
            value = value[0]  # files from before scalars were 0-d
        if tuple(value.shape) != tuple(param.shape):
            return (
                f"size mismatch for {key}: copying a param with shape {_shape(value)} from "
                f"checkpoint, the shape in current model is {_shape(param)}."
            )
        if metadata.get("assign_to_params_buffers"):
            self._assign(name, param, value)
            return None
        if param.is_meta and not value.is_meta:
            return (
                f'While copying the parameter named "{key}": the model is on the meta device and '
                "has no memory to copy into; call to_empty(device=...) first, or pass assign=True"
            )
        try:
            with no_grad():
                param.copy_(value)
        except (DisttrainError, TypeError, ValueError) as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{_shape(param)} and whose dimensions in the checkpoint are {_shape(value)}, an "
                f"error occurred: {error}."
            )
        return None

    def _assign(self, name: str, param: Tensor, value: Tensor) -> None:
        if isinstance(param, Parameter):
            if not isinstance(value, Parameter):
                value = Parameter(value, requires_grad=param.requires_grad)
            else:
                value.requires_grad_(param.requires_grad)
        setattr(self, name, value)

    # --- hooks ----------------------------------------------------------------------------
    def register_state_dict_pre_hook(self, hook: Callable) -> Any:
        """``hook(module, prefix, keep_vars)`` before this module's state is collected."""
        return hooks.add(self, hooks.STATE_PRE, hooks.Hook(hook))

    def register_state_dict_post_hook(self, hook: Callable) -> Any:
        """``hook(module, state_dict, prefix, metadata)`` after; it may change ``state_dict``."""
        return hooks.add(self, hooks.STATE_POST, hooks.Hook(hook))

    def _register_state_dict_hook(self, hook: Callable) -> Any:
        """As the post-hook, but what it returns (if not None) replaces the dict."""
        return hooks.add(self, hooks.STATE_INNER, hooks.Hook(hook))

    def register_load_state_dict_pre_hook(self, hook: Callable) -> Any:
        """``hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)``."""
        return hooks.add(self, hooks.LOAD_PRE, hooks.Hook(hook, with_kwargs=True))

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> Any:
        return hooks.add(self, hooks.LOAD_PRE, hooks.Hook(hook, with_kwargs=with_module))

    def register_load_state_dict_post_hook(self, hook: Callable) -> Any:
        """``hook(module, incompatible_keys)`` after loading; it may change the two lists."""
        return hooks.add(self, hooks.LOAD_POST, hooks.Hook(hook))


def consume_prefix(state_dict: dict[str, Any], prefix: str) -> None:
    """Take ``prefix`` (of a wrapper: ``"module."``) off the names in ``state_dict``, in place,
    where they begin with it."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    versions = getattr(state_dict, "_metadata", None)
    for key in [k for k in versions or () if f"{k}.".startswith(prefix)]:
        versions[key[len(prefix) :]] = versions.pop(key)  # type: ignore[index,union-attr]


def _load(
    module: Any,
    state: OrderedDict,
    prefix: str,
    metadata: OrderedDict | None,
    assign: bool,
    report: tuple,
) -> None:
    """Load ``module`` and what is below it from ``state``, whose keys all begin with ``prefix``."""
    missing, unexpected, errors = report
    local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            path = f"{prefix}{name}."
            below = OrderedDict((k, v) for k, v in state.items() if k.startswith(path))
            _load(child, below, path, metadata, assign, report)
    for hook in hooks.of(module, hooks.LOAD_POST):
        if hook.run(module, _IncompatibleKeys(missing, unexpected)) is not None:
            raise HookError(
                f"{type(module).__name__}: Hooks registered with "
                "register_load_state_dict_post_hook are not expected to return new values; "
                "change the two lists in place"
            )


def _belongs(rest: str, known: set[str], module: State) -> bool:
    head, dot, _ = rest.partition(".")
    if dot:
        return head in module._modules
    return rest in known


def _shape(t: Tensor) -> str:
    return str(t.shape)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{k}"' for k in keys)
