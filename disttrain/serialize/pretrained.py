"""Folders of models in Hugging Face's layout: ``save_pretrained`` and ``from_pretrained``.

    config.json                       what the model is made of
    model.safetensors                 the tensors, or, where they are larger than one file may be:
    model-00001-of-00002.safetensors  model-00002-of-00002.safetensors
    model.safetensors.index.json      {"metadata": {"total_size"}, "weight_map": {name: file}}

A tensor with several names (tied weights) is stored under its first one; the file's metadata says
which others it has, as ``safetensors.torch.save_model`` does. Files that PyTorch wrote
(``pytorch_model.bin``) are read, too. Whatever a folder says is doubted; nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import sizes
from ..core import Tensor
from ..errors import ConfigError, SerializationError, StateDictError
from . import disk
from .api import file_of, inspect, load
from .files import total, write_file
from .layout import METADATA, NAMES, load_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_SHARD = re.compile(r"model-\d{5,}-of-\d{5,}\.safetensors\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\.(safetensors|bin)\Z")
_CAP = 64 << 20  # bytes of a JSON file that are read at most


# --- writing -------------------------------------------------------------------------------------


def save_pretrained(
    model: Any,
    folder: str | os.PathLike,
    config: Any = None,
    *,
    max_shard_size: str | int = "5GB",
    is_main_process: bool = True,
) -> None:
    """Write ``model`` (a module or a state dict of tensors) into ``folder``, in Hugging Face's
    layout.

    ``config``: a dict, a dataclass or an object with ``to_dict()``, for ``config.json`` (default:
    the module's ``config``, if it has one); ``architectures`` and ``dtype`` are added. More than
    ``max_shard_size`` bytes (``"500MB"``) go into several files with an index. Of tensors that lie
    on several ranks (FSDP, tensor parallelism) all ranks call this, and the one with
    ``is_main_process`` writes. Each file is replaced in one step, the index last.
    """
    where, limit = os.fspath(folder), _limit(max_shard_size)
    tensors = _tensors(model)
    about = _config(model, config, tensors)
    if not is_main_process:
        return
    os.makedirs(where, disk.folder_mode(), exist_ok=True)
    stored, tied = _once(tensors)
    shards = split(stored, limit)
    names = [WEIGHTS] if len(shards) == 1 else [
        f"model-{k:05d}-of-{len(shards):05d}.safetensors" for k in range(1, len(shards) + 1)
    ]  # fmt: skip
    _unlink(where, [INDEX] if len(shards) == 1 else [WEIGHTS])
    for name, shard in zip(names, shards):
        twins = {twin: kept for twin, kept in tied.items() if kept in shard}
        parts = file_of(shard, twins)
        write_file(os.path.join(where, name), parts, total(parts))
    if len(shards) > 1:
        table = {n: file for file, shard in zip(names, shards) for n in shard}
        size = sum(a.nbytes for a in stored.values())
        _write_json(where, INDEX, {"metadata": {"total_size": size}, "weight_map": table})
    if about is not None:
        _write_json(where, CONFIG, about)
    _unlink(where, [n for n in os.listdir(where) if _SHARD.match(n) and n not in names])


def save_characters(characters: Sequence[str], folder: str | os.PathLike) -> None:
    """Write the tokenizer of a model of characters into ``folder``: a code for each, its place. The
    file is one of Hugging Face's ``tokenizers`` (words that are single characters)."""
    where = os.fspath(folder)
    every = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated"}
    words = {c: code for code, c in enumerate(characters)}
    told: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {**every, "invert": False}, "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unknown>"},
    }  # fmt: skip
    _write_json(where, "tokenizer.json", told)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    _write_json(where, "tokenizer_config.json", about)


def split(arrays: Mapping[str, np.ndarray], limit: int) -> list[dict[str, np.ndarray]]:
    """The arrays in groups of at most ``limit`` bytes, in their order; one that is larger is alone.
    An empty mapping is one empty group."""
    groups: list[dict[str, np.ndarray]] = [{}]
    room = limit
    for name, array in arrays.items():
        if groups[-1] and array.nbytes > room:
            groups.append({})
            room = limit
        groups[-1][name] = array
        room -= array.nbytes
    return groups


def _limit(given: str | int) -> int:
    limit = sizes.parse_size(given) if isinstance(given, str) else given
    if type(limit) is not int or limit < 1:
        raise ConfigError(
            f"save_pretrained: max_shard_size={given!r} given; needed is a size like '5GB'"
        )
    return limit


def _tensors(model: Any) -> dict[str, np.ndarray]:
    """The arrays of a module or a state dict, on the host, whole."""
    kind = hasattr(model, "state_dict") and not isinstance(model, type)
    state = model.state_dict() if kind else model
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"save_pretrained: {type(model).__name__} given; a module or a dict of tensors is "
            "needed"
        )
    return {_name(name): _array(name, value) for name, value in state.items()}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"save_pretrained: the key {name!r} is no text; tensors need names")
    if name == METADATA:
        raise ConfigError(f"save_pretrained: no tensor can be called {name!r} in such files")
    return name


def _array(name: str, value: Any) -> np.ndarray:
    if hasattr(value, "full_tensor"):  # it lies on several ranks
        value = value.full_tensor()
    if isinstance(value, Tensor):
        if value.device.type == "meta":
            raise SerializationError(f"save_pretrained: {name!r} is on the meta device: no data")
        value = value.detach().cpu().array
    if not isinstance(value, np.ndarray) or value.dtype not in NAMES:
        what = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise SerializationError(
            f"save_pretrained: {name!r} is {what}; such files hold tensors of "
            f"{', '.join(str(d) for d in NAMES)} alone. Numbers and texts go into config"
        )
    return value


def _once(tensors: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays without those that are another one under a second name; those names, with the
    first one."""
    first: dict[Any, str] = {}
    stored: dict[str, np.ndarray] = {}
    tied: dict[str, str] = {}
    for name, array in tensors.items():
        place = array.__array_interface__["data"][0]
        alone = not array.size or _reserved(name)
        key = name if alone else (place, array.shape, array.strides, array.dtype)
        kept = first.setdefault(key, name)
        if kept == name:
            stored[name] = array
        else:
            tied[name] = kept
    return stored, tied


def _reserved(name: str) -> bool:
    """Whether the metadata of files has it for something else."""
    return name == "format" or name.startswith("disttrain")


def _config(model: Any, given: Any, tensors: dict[str, np.ndarray]) -> dict[str, Any] | None:
    found = getattr(model, "config", None) if given is None else given
    if found is None or (given is None and not _says(found)):
        return None
    if hasattr(found, "to_dict"):
        found = found.to_dict()
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        found = dataclasses.asdict(found)
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"save_pretrained: config is {type(found).__name__}; a dict, a dataclass or an object "
            "with to_dict() is needed"
        )
    about = dict(found)
    if hasattr(model, "state_dict"):
        about.setdefault("architectures", [type(model).__name__])
    kinds = [a.dtype.name for a in tensors.values() if "float" in a.dtype.name]
    if kinds and "torch_dtype" not in about:
        about.setdefault("dtype", max(set(kinds), key=kinds.count))
    return about


def _says(found: Any) -> bool:
    """Whether what a module calls its config can be one."""
    told = isinstance(found, Mapping) or hasattr(found, "to_dict")
    return (told or dataclasses.is_dataclass(found)) and not isinstance(found, type)


def _write_json(folder: str, name: str, value: Any) -> None:
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"save_pretrained: {name}: no JSON can hold this: {error}") from None
    raw = text.encode()
    write_file(os.path.join(folder, name), [raw], len(raw))


def _unlink(folder: str, names: list[str]) -> None:
    for name in names:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            os.unlink(path)


# --- reading -------------------------------------------------------------------------------------


def from_pretrained(
    model: Any, folder: str | os.PathLike, *, strict: bool = True, assign: bool = False
) -> Any:
    """Fill ``model`` with the tensors of ``folder``, in Hugging Face's layout, and give it back.

    ``model``: a module, or a function that makes one of the dict in ``config.json``. Names must be
    those of the module's state dict; a name may be missing where its tensor is tied to one that is
    there. ``strict=False`` leaves what is not there as it is. ``assign=True`` takes the file's
    tensors (mapped, and with their types) instead of copying them. ``StateDictError`` lists what
    does not fit.
    """
    where = os.fspath(folder)
    if isinstance(model, type) or not hasattr(model, "load_state_dict"):
        model = _made(model, read_config(where))
    state = read_pretrained(where)
    own = model.state_dict(keep_vars=True)
    missing = [name for name in own if name not in state]
    tied = _shared(own, missing, state)
    same = {n: kept for n, kept in _shared(own, list(own), own).items() if own[n] is own[kept]}
    if strict:
        state = {**state, **{name: state[kept] for name, kept in tied.items()}}
    try:
        model.load_state_dict(state, strict=strict, assign=assign)
    except StateDictError as error:
        raise StateDictError(f"from_pretrained: {where}: {error}") from None
    if assign:
        _tie(model, same)
    return model


def _tie(model: Any, tied: Mapping[str, str]) -> None:
    """Parameters that were one are one again: each of its names was assigned a tensor."""
    for name, kept in tied.items():
        (front, _, last), (of, _, first) = name.rpartition("."), kept.rpartition(".")
        if name != kept:
            setattr(model.get_submodule(front), last, getattr(model.get_submodule(of), first))


def _made(make: Any, config: dict[str, Any]) -> Any:
    model = make(config) if callable(make) else make
    if isinstance(model, type) or not hasattr(model, "load_state_dict"):
        raise ConfigError(
            f"from_pretrained: {type(model).__name__} given, or made of {CONFIG}; a module is "
            "needed, or a function that makes one of that dict"
        )
    return model


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
    """What ``config.json`` of a folder says."""
    path = os.path.join(os.fspath(folder), CONFIG)
    if not os.path.isfile(path):
        raise ConfigError(f"from_pretrained: {path}: there is no such file")
    told = _json(path)
    if type(told) is not dict:
        raise SerializationError(f"{path}: an object is needed, {type(told).__name__} found")
    return told


def read_pretrained(folder: str | os.PathLike) -> dict[str, Tensor]:
    """The tensors of a folder in Hugging Face's layout (or of one of its files), by name: mapped,
    so that what is not used costs nothing."""
    where = os.fspath(folder)
    state: dict[str, Tensor] = {}
    for part in _parts(where):
        for name, tensor in part.tensors().items():
            if name in state:
                raise SerializationError(f"{part.path}: tensor {name!r:.80} stands in two files")
            state[name] = tensor
    return state


@dataclass
class _Part:
    """A file, and the names that the index gives it (None: there is no index)."""

    path: str
    names: list[str] | None = None

    def tensors(self) -> dict[str, Tensor]:
        found = load(self.path)
        if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
            raise SerializationError(f"{self.path}: a flat table of tensors is needed")
        if self.names is not None:
            lost = [name for name in self.names if name not in found]
            if lost:
                raise SerializationError(
                    f"{self.path}: {len(lost)} tensors that the index names are not in it: "
                    f"{', '.join(lost[:8]):.300}"
                )
            found = {name: found[name] for name in self.names}
        return {**found, **self._twins(found)}

    def _twins(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        """The other names of tied tensors, which the metadata of a file has."""
        if self.path.endswith(".bin"):
            return {}
        told = inspect(self.path).metadata
        return {twin: found[kept] for twin, kept in told.items()
                if kept in found and twin not in found and not _reserved(twin)}  # fmt: skip


def _parts(where: str) -> Iterator[_Part]:
    if os.path.isfile(where) and not where.endswith(".json"):
        yield _Part(where)
        return
    if not os.path.isdir(where):
        raise ConfigError(f"from_pretrained: {where} is no folder; one with {WEIGHTS} is needed")
    for whole, index in ((WEIGHTS, INDEX), (PICKLED, PICKLED_INDEX)):
        if os.path.isfile(os.path.join(where, whole)):
            yield _Part(os.path.join(where, whole))
            return
        if os.path.isfile(os.path.join(where, index)):
            yield from _of_index(where, index)
            return
    raise ConfigError(f"from_pretrained: {where} holds no {WEIGHTS}, nor {INDEX}, nor {PICKLED}")


def _of_index(where: str, index: str) -> Iterator[_Part]:
    path = os.path.join(where, index)
    told = _json(path)
    table = told.get("weight_map") if type(told) is dict else None
    if type(table) is not dict:
        raise SerializationError(f"{path}: an index needs a weight_map")
    files: dict[str, list[str]] = {}
    for name, file in table.items():
        if type(file) is not str or not _FILE.match(file):
            raise SerializationError(f"{path}: {file!r:.80} is no name of a file beside it")
        files.setdefault(file, []).append(name)
    for file, names in files.items():
        if not os.path.isfile(os.path.join(where, file)):
            raise SerializationError(f"{path}: the file {file} is not there")
        yield _Part(os.path.join(where, file), names)


def _json(path: str) -> Any:
    if os.stat(path).st_size > _CAP:
        raise SerializationError(f"{path}: more than {_CAP} bytes; that is no {CONFIG} nor index")
    with open(path, "rb") as file:
        return load_json(file.read(), path)


def _shared(own: Mapping[str, Any], missing: list[str], state: Mapping[str, Any]) -> dict[str, str]:
    """Of the names of a model that a file has not: those of tensors that it has under another."""
    there = {_place(own[name]): name for name in own if name in state}
    return {name: there[_place(own[name])] for name in missing if _place(own[name]) in there}


def _place(tensor: Any) -> Any:
    if not tensor.numel() or tensor.device.type == "meta":
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape)
