"""Run commands at the same time: together.py COMMAND ... -- COMMAND ...

What the first one writes is seen at once, what the others write when they have ended. The exit
status is the first one that is not 0. All end with this one, however it ends (Linux:
PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

PR_SET_PDEATHSIG = 1


def commands(words: list[str]) -> list[list[str]]:
    """The words between the separators."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            found.append([])
        else:
            found[-1].append(word)
    return found


def main(*words: str) -> int:
    libc = ctypes.CDLL(None)

    def end_with_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    first, *others = commands(list(words))
    with contextlib.ExitStack() as stack:
        running = []
        for command in others:
            output = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
            )
            running.append((command, process, output))
        statuses = [subprocess.call(first, preexec_fn=end_with_parent)]
        for command, process, output in running:
            statuses.append(process.wait())
            print(f"$ {shlex.join(command)}", flush=True)
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
