"""Run the tests several times at once, each file in one of them: team.py COUNT python -m pytest ...

Whoever comes to a file first claims it (tests/support/claims.py), so that all end at about the same
time. What the first says is shown at once, what the others say is shown when all have ended. The
exit status is the worst.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path


def main(count: str, *command: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, f"--claims={folder}"]
        heard = [Path(folder, f"said {member}") for member in range(1, int(count))]
        running = [subprocess.Popen(words)]
        try:
            for path in heard:
                with path.open("w") as said:
                    running.append(subprocess.Popen(words, stdout=said, stderr=said))
            statuses = [member.wait() for member in running]
        finally:
            for member in running:
                member.kill()
                member.wait()
            for path in heard:
                sys.stdout.write(path.read_text(errors="replace"))
    return max(abs(status) for status in statuses)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
