"""``python -m launcher``: the command dtrun."""

import sys

from .cli import main

sys.exit(main())
