"""Where runs and their checkpoints lie, and how a checkpoint gets there in one piece.

    <log.dir>/0001/config.toml  metrics.jsonl  events.out.tfevents...  epoch_0020/
                   epoch_0020_step_00000450/  in the middle of the next epoch
                   job                        which job went on with it last
                   model.json                 what the model was made for, for ``disttrain export``

A checkpoint is a folder that all ranks write, each what it holds (``docs/checkpoints.md``). It
counts once it is committed: whatever happens, the newest ``epoch_*`` that ``find`` gives is whole,
and any number of ranks can go on from it. A job has one run: whatever of it is started anew finds
that again by ``own_run``. Knows nothing of what a checkpoint holds, but that ``settings`` is a text
in it and ``optimizer`` the state of an optimizer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import disttrain as dt
import disttrain.distributed.checkpoint as dcp
from disttrain import outputs
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files.folder import MANIFEST
from disttrain.errors import ConfigError, SerializationError

_OPTIMIZER = "optimizer"
_JOB = "job"  # the file of a run that says which job went on with it last
_METRICS = "metrics.jsonl"


def job_of(env: Mapping[str, str]) -> str:
    """The name by which whatever is started anew of this job finds the job's own run; "" where it
    cannot have one. dtrun gives every job a name that no other one has; what other launchers give
    may be an earlier job's, too, and counts from the first restart on."""
    again = env.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return env.get("DISTTRAIN_JOB_ID") or (env.get("TORCHELASTIC_RUN_ID", "") if again else "")


def own_run(folder: Path, job: str, resume: Path | None = None) -> Path | None:
    """The run that ``job`` has made in ``folder``, or goes on with from the checkpoint ``resume``;
    None where it has not begun."""
    there = [] if resume is None else [resume.parent]
    for run in [*there, *sorted(_runs(folder), reverse=True)]:
        noted = run / _JOB
        if job and noted.exists() and noted.read_text() == job:
            return run
    return None


def open_run(folder: Path, job: str, resume: Path | None) -> Path:
    """The folder in which ``job`` goes on: its own; or that of the checkpoint ``resume``, if that
    is the newest there; else a new one, which begins with the records of the old one."""
    run = own_run(folder, job, resume)
    if run is None and resume is not None and newest(resume.parent) == resume:
        run = resume.parent
    if run is None:
        run = new_run(folder)
        if resume is not None and (resume.parent / _METRICS).exists():
            shutil.copyfile(resume.parent / _METRICS, run / _METRICS)
    if job:
        with open(run / _JOB, "wb", buffering=0) as file:
            outputs.write_all(file.fileno(), job.encode(), file.name)
    return run


def new_run(folder: Path) -> Path:
    """Make and return the next numbered folder in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.name) for p in _runs(folder)), default=0)
    while True:
        run = folder / f"{number:04d}"
        try:
            run.mkdir()
        except FileExistsError:  # another job was faster
            number += 1
        else:
            return run


def newest(run: Path | None) -> Path | None:
    """The newest checkpoint of a run; None where it has none."""
    found = [] if run is None else _checkpoints(run)
    return found[-1] if found else None


def find(where: Path) -> Path:
    """The newest checkpoint of ``where``: a checkpoint, the folder of a run, or one of runs."""
    if (where / MANIFEST).exists():
        return where
    for run in [where, *sorted(_runs(where), reverse=True)]:
        found = newest(run)
        if found:
            return found
    raise ConfigError(
        f"--resume: there is no checkpoint (epoch_*) in {where} nor in its numbered folders; name "
        "the folder of a run, or start without --resume"
    )


def name_of(epoch: int, step: int | None = None) -> str:
    """What the checkpoint after ``epoch`` epochs (and in the next, after ``step`` steps of all) is
    called. Names sort as the run goes."""
    return f"epoch_{epoch:04d}" + ("" if step is None else f"_step_{step:08d}")


def save(run: Path | None, name: str, state: dict[str, Any], keep: int) -> None:
    """Save ``state`` as the checkpoint ``name`` in the folder ``run`` (rank 0 knows it), then
    delete all but the newest ``keep``. Every rank calls it."""
    told = [None if run is None else str(run)]
    if dt.distributed.is_initialized():
        dt.distributed.broadcast_object_list(told)
    if told[0] is None:
        return  # a rank without peers (dtrun --fake) has nothing that would be a checkpoint
    dcp.save(state, checkpoint_id=Path(told[0]) / name)
    if run is not None:
        for old in _checkpoints(run)[:-keep]:
            tools.remove(str(old))


def load(path: Path, state: dict[str, Any], optimizer: Any, check: Callable[[str], None]) -> Any:
    """Fill ``state`` from the checkpoint ``path``; gives it back. Every rank calls it.

    ``check(settings)`` is called first, and raises where the checkpoint is of another run.
    """
    about = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    there = {name.partition(".")[0] for name in about}
    missing = [name for name in state if name not in there]
    if missing:
        raise SerializationError(
            f"--resume: {path} holds no {', '.join(missing)}; a checkpoint of train.py is needed"
        )
    check(tools.values(str(path), ["settings"])["settings"])
    state = {**state, _OPTIMIZER: _blank(about, optimizer)}
    dcp.load(state, checkpoint_id=path)
    return state


def part(path: Path, name: str, rank: int) -> tuple[Any, bool]:
    """What rank ``rank`` has saved under ``name``, and whether it has: else it is rank 0's; None
    where no rank has saved anything."""
    there = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    for number in (rank, 0):
        key = f"{name}.{number}"
        if any(k == key or k.startswith(key + ".") for k in there):
            return tools.values(str(path), [key])[name][str(number)], number == rank
    return None, False


def _blank(about: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """A state for ``optimizer`` with room for what the checkpoint has: what is of the size of its
    parameter lies as the parameter does."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    groups, at = [], 0
    for group in optimizer.param_groups:
        numbers = list(range(at, at := at + len(group["params"])))
        groups.append({**group, "params": numbers})
    state: dict[int, dict[str, Any]] = {}
    for name, told in about.items():
        if name.startswith(f"{_OPTIMIZER}.state."):
            number, key = name.split(".", 3)[2:]
            room = None
            if isinstance(told, dcp.TensorStorageMetadata):
                param, kind = params[int(number)], told.properties.dtype
                if tuple(told.size) == tuple(param.shape):
                    room = dt.zeros_like(param, dtype=kind)
                else:
                    room = dt.zeros(told.size, dtype=kind)
            state.setdefault(int(number), {})[key] = room
    return {"param_groups": groups, "state": state}


def state_of(optimizer: Any) -> dict[str, Any]:
    """The optimizer's state for ``save``; one that is spread over ranks is brought to rank 0."""
    if isinstance(optimizer, dt.distributed.optim.ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)
        if dt.distributed.get_rank():
            return {"param_groups": [], "state": {}}
    return optimizer.state_dict()


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in folder.iterdir() if p.is_dir() and p.name.isdigit()]


def _checkpoints(run: Path) -> list[Path]:
    return sorted(p.parent for p in run.glob(f"epoch_*/{MANIFEST}"))
