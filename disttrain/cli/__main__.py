"""``python -m disttrain.cli``."""

import sys

from . import main

sys.exit(main())
