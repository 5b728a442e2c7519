"""functional_call: a module as a function of its parameters. Knows a module by its tables only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import Tensor
from ..errors import ConfigError, ModuleError, StateDictError

_MISSING = object()  # in place of a tensor where there is none


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: object = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with other parameters and buffers, by name.

    ``parameter_and_buffer_dicts`` is a dict, or several of them with different names; what is not
    named stays as it is. The module is as before afterwards; one dict gets what the call has
    assigned to the names in it. ``tie_weights``: a name that is tied to another (one tensor under
    two names) stands for both. ``strict``: the names must be exactly those of the module.
    """
    given = _one_dict(parameter_and_buffer_dicts)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, given, tie_weights=tie_weights, strict=strict):
        return module(*args, **({} if kwargs is None else kwargs))


def _one_dict(dicts: dict | int | tuple) -> dict[str, Any]:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, (list, tuple)) or not all(isinstance(d, dict) for d in dicts):
        raise ConfigError(
            "functional_call: Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of "
            f"dicts, but got {type(dicts).__name__}"
        )
    names = [name for table in dicts for name in table]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigError(
            f"functional_call: {twice} appeared in multiple dictionaries; behavior of functional "
            "call is ambiguous"
        )
    return {name: value for table in dicts for name, value in table.items()}


@contextmanager
def replaced(
    module: object, given: dict[str, Any], *, tie_weights: bool = True, strict: bool = False
) -> Iterator[None]:
    """``module`` with the tensors of ``given`` in place of its own; afterwards as before."""
    values = _with_tied(module, given) if tie_weights else given
    if strict:
        _check_names(module, values)
    before: dict[str, Any] = {}
    try:
        for name, value in values.items():
            before[name] = _swap(_owner(module, name), name.rpartition(".")[2], value)
        yield
    finally:
        after = {
            name: _swap(_owner(module, name), name.rpartition(".")[2], value)
            for name, value in before.items()
        }
        given.update({k: after[k] for k in given if after.get(k, _MISSING) is not _MISSING})


def _all_tensors(module: Any) -> list[tuple[str, Any]]:
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]


def _with_tied(module: object, given: dict[str, Any]) -> dict[str, Any]:
    """``given`` with every name that shares its tensor with a given one."""
    names: dict[int, list[str]] = {}
    for name, t in _all_tensors(module):
        names.setdefault(id(t), []).append(name)
    out = dict(given)
    for tied in names.values():
        known = [n for n in tied if n in given]
        if len(tied) == 1 or not known:
            continue
        value = given[known[0]]
        if any(given[n] is not value for n in known):
            raise ConfigError(
                f"functional_call got multiple values for keys {sorted(known)}, which are tied. "
                "Consider using tie_weights=False"
            )
        out.update(dict.fromkeys(tied, value))
    return out


def _check_names(module: object, values: dict[str, Any]) -> None:
    have = {name for name, _ in _all_tensors(module)}
    problems = []
    for text, wrong in (("Unexpected", values.keys() - have), ("Missing", have - values.keys())):
        if wrong:
            problems.append(f"{text} key(s): {', '.join(map(repr, sorted(wrong)))}.")
    if problems:
        raise StateDictError(
            "Error(s) in reparametrizing for {}:\n\t{}".format(
                type(module).__name__, "\n\t".join(problems)
            )
        )


def _owner(module: object, name: str) -> Any:
    """The submodule in which the tensor of that dotted name is."""
    for step in name.split(".")[:-1]:
        found = getattr(module, step, _MISSING)
        if found is _MISSING or not hasattr(found, "_parameters"):
            raise ModuleError(f"functional_call: {type(module).__name__} has no attribute `{step}`")
        module = found
    return module


def _swap(owner: Any, leaf: str, value: object) -> Any:
    """Put ``value`` in the place of a tensor (``_MISSING``: take it away); gives what was there."""
    if value is not _MISSING and value is not None and not isinstance(value, Tensor):
        raise TypeError(f"functional_call: {leaf}: {value} is not an instance of torch.Tensor")
    for table in (owner._parameters, owner._buffers):
        if leaf in table:
            before = table[leaf]
            if value is _MISSING:
                del table[leaf]
            else:
                table[leaf] = value
            return before
    before = getattr(owner, leaf, _MISSING)
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(
            f"functional_call: attribute `{leaf}`: {before} is not an instance of torch.Tensor"
        )
    if value is not _MISSING:
        setattr(owner, leaf, value)
    elif before is not _MISSING:
        delattr(owner, leaf)
    return before
