"""``python -m launcher``: the command dtrun."""

import sys

from .command import main

sys.exit(main())
