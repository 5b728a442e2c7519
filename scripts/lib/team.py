"""Run the tests several times at once, each file in one of them: team.py COUNT python -m pytest ...

Whoever comes to a file first claims it (tests/support/claims.py), so that all end at about the same
time. What the first says is shown at once, what the others say is shown when all have ended. The
exit status is the worst.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


def main(count: str, *command: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, f"--claims={folder}"]
        running, heard = [subprocess.Popen(words)], []
        for member in range(1, int(count)):
            heard.append(Path(folder, f"said-{member}").open("w+"))
            running.append(subprocess.Popen(words, stdout=heard[-1], stderr=subprocess.STDOUT))
        try:
            statuses = [member.wait() for member in running]
        finally:
            for member in running:
                member.kill()
                member.wait()
            for said in heard:
                said.seek(0)
                shutil.copyfileobj(said, sys.stdout)
                said.close()
    return max(abs(status) for status in statuses)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
