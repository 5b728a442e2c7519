"""``python -m disttrain.record.replay``: the process in which a rank runs again."""

import os
import sys

from .program import main

status = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
