"""The state of an optimizer, loaded before there is one: PyTorch's older way."""

from __future__ import annotations

from typing import Any

from ...core import Tensor
from ...ops import api
from .background import wait_for_pending
from .default_planner import DefaultLoadPlanner
from .metadata import STATE_DICT_TYPE, Metadata, TensorStorageMetadata
from .planner import LoadPlanner
from .state.flat import paths_of, set_element
from .state_dict_loader import load
from .storage import StorageReader


def load_sharded_optimizer_state_dict(
    model_state_dict: STATE_DICT_TYPE,
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> STATE_DICT_TYPE:
    """What a checkpoint has under ``optimizer_key``. What is of the shape of the parameter that its
    path names lies as that one does in ``model_state_dict``; other tensors are whole."""
    wait_for_pending()
    state = room_for(storage_reader.read_metadata(), optimizer_key, model_state_dict)
    load(state, storage_reader=storage_reader, planner=planner or DefaultLoadPlanner())
    return state


def room_for(about: Metadata, key: str, params: dict[Any, Any]) -> dict[str, Any]:
    """A nested dict with room for what lies under ``key``. ``params``: the tensors that a part of a
    path may name."""
    state: dict[str, Any] = {}
    for name, told in about.state_dict_metadata.items():
        path = paths_of(about).get(name, (name,))
        if path[0] != key:
            continue
        room = None
        if isinstance(told, TensorStorageMetadata):
            like = next((params[k] for k in path[1:] if k in params), None)
            kind = told.properties.dtype
            if isinstance(like, Tensor) and tuple(like.shape) == tuple(told.size):
                room = api.zeros_like(like, dtype=kind)
            else:
                room = api.zeros(told.size, dtype=kind)
        set_element(state, path, room)
    return state
