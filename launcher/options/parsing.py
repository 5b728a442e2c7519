"""The parser of the command line: torchrun's two spellings of a flag, hints where one is mistyped,
help with examples, and what is printed instead of starting anything.

Standard library only, so that it answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from . import completion, limits
from .environment import COLUMNS

MORE = """\
examples:
  dtrun --nproc-per-node 4 train.py --lr 0.1     four ranks on this machine
  dtrun --nproc-per-node 4 -m package.train      the program is a module
  dtrun --nproc-per-node 2 --max-restarts 3 --log-dir logs --tee 3 train.py
                                                 start again after failures, keep outputs
  dtrun --nproc-per-node 4 --as-torch train.py   a script that says `import torch`
  dtrun --nproc-per-node 4 --as-jax train.py     one that says `import jax`: a device per rank
  dtrun --simulate 64 train.py                   64 ranks in one process
  dtrun --dry-run --nproc-per-node 4 train.py    what would be started
  eval "$(dtrun --print-completion bash)"        completion of options (or zsh)

exit codes:
  0        all ranks have ended well           2   the command line cannot be meant
  k        the first rank that failed ended with exit code k
  128 + N  that rank was killed by signal N; or the job was: 130 Ctrl-C, 143 SIGTERM,
           141 nobody reads its output any more
  75       the nodes did not meet in time: try again   76   this node was given up by the others

files of --log-dir:
  report.json                       who failed first, of what, and how each rank ended
  attempt_N/RANK/stdout.log         with --redirects or --tee; stderr.log alike
  attempt_N/RANK/error.json         the exception of a rank, as torchelastic writes it
                                    (TORCHELASTIC_ERROR_FILE)

Every flag may be spelled with _ for -, and be given by a variable: PET_NPROC_PER_NODE=4.
Prefixes of lines are coloured on terminals; NO_COLOR=1 and FORCE_COLOR=1 decide otherwise."""


# Flags of torchrun's that may be shortened to what flags of our own begin with, too.
SHORTENED = ("--redirects", "--tee")


def _formatter(prog: str, **more: Any) -> argparse.HelpFormatter:
    """As wide as the terminal, without ``shutil``, of which argparse asks that for every flag."""
    width = COLUMNS.text()
    try:
        columns = int(width) if width.isdigit() else os.get_terminal_size(1).columns
    except OSError:
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or 80) - 2, **more)


class Parser(argparse.ArgumentParser):
    """Accepts ``--nproc_per_node`` for ``--nproc-per-node``, and says what a mistyped flag may have
    meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_formatter, **settings)

    def _get_option_tuples(self, option_string: str) -> list:
        found = super()._get_option_tuples(dashes(option_string))
        torchruns = [one for one in found if one[1].startswith(SHORTENED)]
        return torchruns if len(torchruns) == 1 else found

    def _parse_optional(self, arg_string: str):
        return super()._parse_optional(dashes(arg_string))

    def parse_known_args(self, args=None, namespace=None):
        """The program's arguments are its own: here they are not even looked at. (argparse refuses
        ``train.py --a`` where several flags of ours begin so.)"""
        words = list(sys.argv[1:] if args is None else args)
        where = self._program_at(words)
        given, rest = super().parse_known_args(words[:where], namespace)
        given.program = words[where:]
        return given, rest

    def _program_at(self, words: Sequence[str]) -> int:
        """Where the flags and their values end."""
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
            at += 2 if self._takes_the_next(words[at]) else 1
        return min(at, len(words))

    def _takes_the_next(self, word: str) -> bool:
        """Is the word after that flag its value?"""
        name, equals, _ = dashes(word).partition("=")
        flag = self._option_string_actions.get(name)
        if flag is None and name.startswith("--"):
            near = self._get_option_tuples(name)
            flag = near[0][0] if len(near) == 1 else None
        elif flag is None:  # -mr 3, -t3
            for at, letter in enumerate(word[1:], 2):
                flag = self._option_string_actions.get(f"-{letter}")
                if flag is None or flag.nargs != 0:
                    return flag is not None and at == len(word)
        return flag is not None and flag.nargs not in (0, "?") and not equals

    def error(self, message: str):
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        """The flags that are nearest to those which nobody knows."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        if not unknown:
            return ""
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        near = [
            hit
            for word in re.findall(r"--[\w-]+", words)
            for hit in difflib.get_close_matches(dashes(word), known, 1, 0.6)
        ]
        return f"; did you mean {', '.join(near)}?" if near else ""


def program_of(words: Sequence[str]) -> list[str]:
    """The program and its arguments, of what stands behind the flags. As with torchrun, two dashes
    beside the program's name end the flags, and are none of its arguments; others are."""
    at = 0 if words[:1] == ["--"] else 1
    return [*words[:at], *words[at + 1 :]] if words[at : at + 1] == ["--"] else list(words)


def dashes(text: str) -> str:
    """``--a_b=c_d`` as ``--a-b=c_d``."""
    if not text.startswith("--"):
        return text
    name, equals, value = text.partition("=")
    return name.replace("_", "-") + equals + value


class _Print(argparse.Action):
    """A flag that prints something, after which nothing is started."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.dest == "print_completion":
            print(completion.script(parser, values), end="")
        else:
            print(f"{limits.table()}\n{_own_limits()}")
        parser.exit()


def _own_limits() -> str:
    """What the job's store takes, as ``limits.table`` says the rest."""
    store = importlib.import_module("disttrain.comm.store").Limits()
    names = [name for name in vars(type(store)) if not name.startswith("_")]
    return limits.rows([(f"store: {name}", str(getattr(store, name))) for name in names])


def add_flags(p: argparse.ArgumentParser) -> None:
    """Those that print."""
    p.add_argument("--print-completion", action=_Print, choices=completion.SHELLS,
                   help="print what completes these options in that shell")  # fmt: skip
    p.add_argument("--print-limits", action=_Print, nargs=0,
                   help="print what this machine and the job's store allow")  # fmt: skip


def flags_of(p: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """All that ``--help`` shows."""
    return [a for a in p._actions if a.option_strings and a.help != argparse.SUPPRESS]
