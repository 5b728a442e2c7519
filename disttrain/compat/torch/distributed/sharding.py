"""``torch.distributed.fsdp`` and what is below it; each is filled when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ...publish import MissingName, Shim, lacking, public

_FSDP = "disttrain.distributed.fsdp"


def _from(*sources: str) -> Callable[[Shim], object]:
    """Fills a module with the public names of project modules, or with one: ``"module:name"``."""

    def fill(shim: Shim) -> None:
        for source in sources:
            path, _, name = source.partition(":")
            shim.take(importlib.import_module(path), [name] if name else None)

    return fill


class Same(Shim):
    """A project module under another name: what programs set here is set there, so that they can
    put functions of their own in the place of those that the module calls. What it lacks may be
    in ``others``."""

    def __init__(self, name: str, source: str, *others: str) -> None:
        super().__init__(name)
        self.__dict__["_sources"] = (source, *others)
        self.__dict__["_own"] = {}  # of names that a program has set: what was there before

    def _source(self, name: str) -> Any:
        """The first module that has ``name``; if none has, the first of all."""
        found = [importlib.import_module(path) for path in self._sources]
        return next((module for module in found if hasattr(module, name)), found[0])

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # from ... import *
            return dir(self)
        if name.startswith("__"):
            return super().__getattr__(name)
        source = self._source(name)
        try:
            return getattr(source, name)
        except AttributeError as error:
            raise MissingName(lacking(f"{self.__name__}.{name}", source)) from error

    def __dir__(self) -> list[str]:
        found = [public(importlib.import_module(path), True) for path in self._sources]
        return list(dict.fromkeys(name for names in found for name in names))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            source = self._source(name)
            if hasattr(source, name):
                self._own.setdefault(name, getattr(source, name))
            setattr(source, name, value)

    def __delattr__(self, name: str) -> None:
        """Of what a program has set, bring back what was there before."""
        if name in self.__dict__:
            super().__delattr__(name)
        elif name in self._own:
            setattr(self._source(name), name, self._own.pop(name))
        else:
            delattr(self._source(name), name)


class Function:
    """A function whose module has its name, too: of the two, a package shows the function."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)


def fsdp_modules() -> dict[str, Shim]:
    """The modules that FSDP scripts import, by name."""
    fsdp, algorithms = "torch.distributed.fsdp", "torch.distributed.algorithms"
    sources = {
        fsdp: (_FSDP,),
        f"{fsdp}.api": (f"{_FSDP}.settings",),
        f"{fsdp}.wrap": (f"{_FSDP}.wrap",),
        f"{fsdp}._fully_shard": (_FSDP,),
        f"{fsdp}._fully_shard._fsdp_api": (f"{_FSDP}.shards.precision",),
        "torch.distributed._composable.fsdp": (_FSDP,),
        "torch.distributed._composable.fsdp.fully_shard": (_FSDP,),
        f"{fsdp}.fully_sharded_data_parallel": (
            f"{_FSDP}.settings",
            _FSDP,
            f"{_FSDP}.flat.param:FLAT_PARAM",
        ),
        f"{fsdp}._common_utils": (
            f"{_FSDP}.names",
            f"{_FSDP}.flat.wrapper",
            f"{_FSDP}.names:FSDP_WRAPPED_MODULE",
            f"{_FSDP}.names:FSDP_PREFIX",
        ),
        f"{fsdp}._flat_param": (f"{_FSDP}.flat.param",),
        f"{fsdp}._traversal_utils": (f"{_FSDP}.flat.traversal",),
        f"{fsdp}._init_utils": (f"{_FSDP}.flat.traversal",),
        f"{fsdp}.sharded_grad_scaler": (f"{_FSDP}.grad_scaler",),
    }
    checkpoint = f"{algorithms}._checkpoint.checkpoint_wrapper"
    hooks = f"{algorithms}._comm_hooks"
    filled = {name: Shim(name).later(_from(*of)) for name, of in sources.items()}
    vars(filled["torch.distributed._composable.fsdp"])["fully_shard"] = Function(
        f"{_FSDP}.fully_shard", "fully_shard"
    )
    return {
        algorithms: Shim(algorithms),
        f"{algorithms}._checkpoint": Shim(f"{algorithms}._checkpoint"),
        hooks: Shim(hooks).later(_from(f"{_FSDP}.comm_hooks:LOW_PRECISION_HOOKS")),
        f"{hooks}.default_hooks": Same(f"{hooks}.default_hooks", f"{_FSDP}.comm_hooks"),
        checkpoint: Same(checkpoint, f"{_FSDP}.activation"),
        **filled,
    }


def mesh_modules() -> dict[str, Shim]:
    """Device meshes and sharded tensors, by the names that they have had."""
    here, ours = "torch.distributed", "disttrain.distributed"
    sources = {
        "device_mesh": "mesh",
        "tensor": "tensor",
        "tensor.placement_types": "tensor.placements",
        "tensor._dtensor_spec": "tensor.api",
        "tensor._utils": "tensor._utils",
        "tensor.experimental": "tensor.dispatch",
        "_tensor": "tensor",
        "_tensor.placement_types": "tensor.placements",
        "_tensor.api": "tensor.api",
        "_tensor.device_mesh": "mesh",
    }
    return {
        f"{here}.{name}": Same(f"{here}.{name}", f"{ours}.{source}")
        for name, source in sources.items()
    }


def checkpoint_modules() -> dict[str, Shim]:
    """Sharded checkpoints, and the names of state under any parallelism."""
    here, ours = "torch.distributed", "disttrain.distributed.checkpoint"
    sources = {
        "checkpoint": "",
        "_state_dict_utils": ".state.values",
        **{
            f"checkpoint.{name}": f".{name}"
            for name in (
                "api default_planner filesystem format_utils hf_storage metadata planner "
                "state_dict state_dict_loader state_dict_saver stateful storage"
            ).split()
        },
    }
    return {
        f"{here}.{name}": Same(f"{here}.{name}", f"{ours}{source}")
        for name, source in sources.items()
    }
