"""What ``disttrain plan --cluster`` does: from a file of a model and one of a cluster to the ranked
layouts, the best of which are played."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...comm.transports.sim.chakra import write_timeline
from ...errors import ConfigError
from .clusters import Machines, read_cluster
from .constants import constants
from .costs import STACK, Costs
from .playing import Player
from .ranking import Choice, Job, Ranking, as_json, as_text, lined_up, rank
from .transformer import Transformer, transformer_of

STACKS = ("default", "composer", "megatron-core", "megatron-deepspeed")


@dataclass(frozen=True)
class Question:
    """How fast ``model`` is on the machines of a file; ``nodes``: so many of them (None: all)."""

    cluster: Path
    model: Transformer
    batch: int
    seq: int
    nodes: int | None = None
    precision: str = "bf16"
    stack: str = STACK
    play: int = 3
    top: int = 10
    chakra: str = ""


def read_model(path: Path) -> tuple[Transformer | None, dict[str, Any]]:
    """The dimensions in the table [model] of a TOML file, where it says them (None: it belongs to a
    program), and its table [training]."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from error
    model, training = table.get("model"), table.get("training", {})
    if not isinstance(model, dict) or "hidden" not in model:
        return None, {}
    return transformer_of(model), _training(training, path)


def _training(table: Any, path: Path) -> dict[str, Any]:
    known = {"batch": int, "seq": int, "precision": str}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: training={table!r} given; needed is a table")
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"{path}: training: unknown key {key!r}; known: {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise ConfigError(f"{path}: training.{key}={value!r} given; needed is "
                              f"{'a whole number' if known[key] is int else 'a text'}")  # fmt: skip
    return dict(table)


def _machines(question: Question) -> Machines:
    machines = read_cluster(question.cluster)
    if question.nodes is None:
        return machines
    if question.nodes < 1:
        raise ConfigError(f"--nodes {question.nodes} given; needed is 1 or more")
    return machines.sized(question.nodes * machines.per_node)


@dataclass(frozen=True)
class Answer:
    """``fits``: whether any layout does."""

    text: str
    fits: bool


def answer(question: Question, as_table: bool = True) -> Answer:
    """The ranking as text or JSON, with what the simulator says of the best."""
    for name in ("batch", "seq"):
        if getattr(question, name) < 1:
            raise ConfigError(
                f"--{name} is missing or below 1: how many "
                f"{'sequences a step takes' if name == 'batch' else 'tokens a sequence has'}"
            )
    if question.play < 0 or question.top < 1:
        raise ConfigError("--play takes 0 or more, --top 1 or more")
    job = Job(question.model, _machines(question), question.batch, question.seq,
              question.precision, question.stack)  # fmt: skip
    ranking = rank(job, constants())
    played = [_played(job, choice) for choice in ranking.best[: question.play]]
    files = _write(question, ranking)
    if not as_table:
        return Answer(as_json(ranking, played), bool(ranking.best))
    lines = [as_text(ranking, question.top)]
    if played:
        lines += ["", *_shown(played)]
    if files:
        lines.append(f"Chakra traces of {files[0]} ranks: {question.chakra}.RANK.et")
    return Answer("\n".join(lines), bool(ranking.best))


def _player(job: Job, choice: Choice) -> Player:
    return Player(Costs(job.model, choice.layout, job.machines, constants(), job.stack))


def _played(job: Job, choice: Choice) -> dict[str, Any]:
    """What playing a layout gives, or why it was not played."""
    try:
        seconds = _player(job, choice).play()
    except ConfigError as error:
        return {"name": choice.layout.name, "why_not": str(error)}
    return {
        "name": choice.layout.name,
        "step_seconds": choice.times.total,
        "played_seconds": seconds,
        "difference": seconds / choice.times.total - 1.0,
    }


def _write(question: Question, ranking: Ranking) -> list[int]:
    if not question.chakra:
        return []
    if not ranking.best:
        raise ConfigError(f"--chakra {question.chakra}: no layout fits, so nothing was played")
    player = _player(ranking.job, ranking.best[0])
    player.play()
    return [len(write_timeline(player.timeline, question.chakra))]


def _shown(played: list[dict[str, Any]]) -> list[str]:
    rows, notes = [], []
    for each in played:
        if "why_not" in each:
            notes.append(f"not played: {each['why_not']}")
        else:
            rows.append([each["name"], f"{each['step_seconds']:.3f} s",
                         f"{each['played_seconds']:.3f} s",
                         f"{100 * each['difference']:+.1f} %"])  # fmt: skip
    heads = ("with contention", "by the model", "played", "difference")
    return (lined_up(heads, rows) if rows else []) + notes
