"""``python -m disttrain_launcher``: the command dtrun."""

import sys

from .command import main

sys.exit(main())
