"""``python -m torch.distributed.run``: torchrun's command line, which is dtrun's."""

import os
import sys

if __name__ == "__main__":
    command = [sys.executable, "-m", "disttrain_launcher", "--as-torch", *sys.argv[1:]]
    os.execv(sys.executable, command)
