"""``python -m disttrain.cli``."""

import sys

from . import command

sys.exit(command())
