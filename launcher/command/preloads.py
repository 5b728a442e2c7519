"""Packages (ours, and what they load late) that are loaded for ranks, by name: once, before ranks
are forked.

What runs jobs knows no tensors and gets these names with its plan. This is the one place of the
launcher that says them, since whoever starts a program knows what it will need. It is a guess: what
is missing a rank loads itself when it asks for it, and what is not needed costs its loading. The
program's own text is a good guide.
"""

from __future__ import annotations

import re
import sys

DISTRIBUTED = "disttrain.distributed"
FACES = "disttrain.compat."  # the face of ``--as-torch`` is ``disttrain.compat.torch`` ...
RECORD = "disttrain.record.recording"  # what ``--record`` asks for
SANITIZE = "disttrain.sanitize.sanitizing"  # what ``--sanitize`` asks for
ALWAYS = ("disttrain.comm.transports.shm.engine", DISTRIBUTED, "numpy.random")
# Packages, and words by which a program names what they have.
NAMED = {
    "disttrain.nn": r"nn",
    "disttrain.optim": r"optim|lr_scheduler",
    "disttrain.data": r"\w*(DataLoader|Dataset|Sampler)",
    "disttrain.distributed.ddp": r"ddp|DDP|DistributedDataParallel",
    "disttrain.distributed.fsdp": r"fsdp|FSDP|fully_shard|FullyShardedDataParallel",
}
USUAL = tuple(name for name in NAMED if not name.endswith("fsdp"))
FIRST = (*ALWAYS, *USUAL)  # for a program of which nothing is known
# What ranks that begin again are likely to use: loaded for all of them, when there may be such.
AGAIN = (
    "disttrain.distributed.checkpoint",
    "disttrain.distributed.elastic",
    "disttrain.distributed.fsdp",
    "disttrain.distributed.planning",
    "disttrain.metrics",
)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_LOADERS = {"importlib", "imp", "runpy"}  # may load whatever they are told
_KNOWN = (sys.stdlib_module_names - _LOADERS) | {
    "disttrain",
    "numpy",
    "torch",
    "jax",
    "tensorflow",
    "tqdm",
}


def of(max_restarts: int, text: str | None = None) -> tuple[str, ...]:
    """The names for ranks of a program of that text, None where it is not known, that may be
    started anew so many times."""
    if text is None or not _imported(text) <= _KNOWN:  # modules of its own may name anything
        named = USUAL
    else:
        named = tuple(name for name, words in NAMED.items() if re.search(rf"\b({words})\b", text))
    return (*ALWAYS, *named, *(AGAIN if max_restarts else ()))


def observers(record: tuple[str, ...], sanitize: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Modules that look on in every rank, where the command line says what is to be recorded, or
    looked for."""
    return (RECORD,) * bool(record) + (SANITIZE,) * bool(sanitize)


def _imported(text: str) -> set[str]:
    """The top names of all modules that the text imports."""
    lines = [first or several for first, several in _IMPORT.findall(text)]
    names = [name.split() for line in lines for name in line.split(",")]
    return {words[0].partition(".")[0] for words in names if words}
