"""What is loaded once, in the process that ranks are forked from, so that no rank has to load it.

Pure. A guess: what is missing here a rank loads itself when it asks for it, and what is not needed
costs its loading. The program's own text is a good guide.
"""

from __future__ import annotations

import re
import sys

ALWAYS = ("disttrain.comm.transports.shm.engine", "disttrain.distributed")
# Packages, and words by which a program names what they have.
NAMED = {
    "disttrain.nn": r"nn",
    "disttrain.optim": r"optim|lr_scheduler",
    "disttrain.data": r"\w*(DataLoader|Dataset|Sampler)",
    "disttrain.distributed.ddp": r"ddp|DDP|DistributedDataParallel",
    "disttrain.distributed.fsdp": r"fsdp|FSDP|fully_shard|FullyShardedDataParallel",
}
USUAL = tuple(name for name in NAMED if not name.endswith("fsdp"))
# What ranks that begin again are likely to use.
AGAIN = (
    "disttrain.distributed.checkpoint",
    "disttrain.distributed.elastic",
    "disttrain.distributed.fsdp",
    "disttrain.distributed.planning",
    "disttrain.metrics",
)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_LOADERS = {"importlib", "imp", "runpy"}  # may load whatever they are told
_KNOWN = (sys.stdlib_module_names - _LOADERS) | {"disttrain", "numpy", "torch", "tqdm"}


def packages(text: str | None, again: bool) -> tuple[str, ...]:
    """Packages for a program of that text, None where it is not known. ``again``: may its ranks
    begin again?"""
    if text is None or not _imported(text) <= _KNOWN:  # modules of its own may name anything
        named = USUAL
    else:
        named = tuple(name for name, words in NAMED.items() if re.search(rf"\b({words})\b", text))
    return (*ALWAYS, *named, *(AGAIN if again else ()))


def _imported(text: str) -> set[str]:
    """The top names of all modules that the text imports."""
    lines = [first or several for first, several in _IMPORT.findall(text)]
    names = [name.split() for line in lines for name in line.split(",")]
    return {words[0].partition(".")[0] for words in names if words}
