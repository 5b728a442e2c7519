"""One part in this process: ``python -m gpuproof.run PART JOURNAL PLATFORM SHARD SHARDS [CASE..]``.

The cases named are passed over: an earlier process of the part began them. Ends with code 0 when
all cases were run, ``STUCK`` when the device answers nothing any more.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from .journal import Job, Journal, Skip, Stuck, one_line

STUCK = 75


def main(words: Sequence[str]) -> int:
    name, path, kind, shard, shards, *after = words
    job = Job(Journal(Path(path)), kind, frozenset(after), int(shard), int(shards))
    try:
        module = importlib.import_module(f"{__package__}.proofs.{name}")
        module.prove(job)
    except Stuck as stuck:
        job.journal.note(f"the device was stuck {stuck}; a fresh process went on")
        return STUCK
    except Skip as skip:
        job.journal.line("skip", name=name, why=str(skip))
    except Exception as error:
        job.journal.line(
            "check", name=f"{name} as a whole", ok=False, detail=one_line(error),
            trace=traceback.format_exc(),
        )  # fmt: skip
        job.journal.line("end")
        raise
    job.journal.line("end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
