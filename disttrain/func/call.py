"""functional_call: a module as a function of its parameters. Knows a module by its tables only."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError


def functional_call(module: Any, parameters: Any, args: Any = (), kwargs: Any = None) -> Any:
    """``module(*args)`` with other parameters and buffers, by name.

    ``parameters`` is a dict, or several of them. The module is as before afterwards.
    """
    args = args if isinstance(args, tuple) else (args,)
    given = (parameters,) if isinstance(parameters, dict) else tuple(parameters)
    before = []
    try:
        for name, value in (item for table in given for item in table.items()):
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path) if path else module
            table = owner._parameters if leaf in owner._parameters else owner._buffers
            if leaf not in table:
                raise ConfigError(
                    f"functional_call: the module has no parameter or buffer {name!r}"
                )
            before.append((table, leaf, table[leaf]))
            table[leaf] = value
        return module(*args, **(kwargs or {}))
    finally:
        for table, leaf, value in reversed(before):
            table[leaf] = value
