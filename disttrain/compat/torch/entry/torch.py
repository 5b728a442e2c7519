"""Found by the import system under the name ``torch``: makes room for the stand-in."""

import sys

from disttrain.compat.torch import install

del sys.modules[__name__]  # this module; the import statement takes what stands here afterwards
install()
