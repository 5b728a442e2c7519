"""The flat list of public functions: what ``dt.<name>`` and the Tensor methods are taken from."""

from .attention import *
from .comparing import *
from .conv import *
from .create import *
from .einsum import *
from .embedding import *
from .index import *
from .loss import *
from .math import *
from .norm import *
from .padding import *
from .pool import *
from .products import *
from .random import *
from .reductions import *
from .shape import *
from .softmax import *
from .sort import *
