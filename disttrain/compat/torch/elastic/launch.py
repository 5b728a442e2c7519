"""``torch.distributed.launch``: torchrun with the rank as an argument, unless ``--use-env``."""

from __future__ import annotations

import sys

from . import running


def main(args: list[str] | None = None) -> None:
    """Start the job; scripts get ``--local-rank=N`` where ``--use-env`` is not given."""
    words = list(sys.argv[1:] if args is None else args)
    names = ("--use-env", "--use_env")
    use_env = any(name in words for name in names)
    given = running.parse_args([word for word in words if word not in names])
    if not use_env:
        given.training_script_args = ["--local-rank=${local_rank}", *given.training_script_args]
    running.run(given)
