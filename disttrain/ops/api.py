"""The flat list of public functions: what ``dt.<name>`` and the Tensor methods are taken from."""

from .functions.aliases import *
from .functions.attention import *
from .functions.comparing import *
from .functions.conv import *
from .functions.create import *
from .functions.data import *
from .functions.einsum import *
from .functions.elementwise import *
from .functions.embedding import *
from .functions.gathering import *
from .functions.join import *
from .functions.linalg import *
from .functions.loss import *
from .functions.memory_formats import *
from .functions.norm import *
from .functions.padding import *
from .functions.pool import *
from .functions.random import *
from .functions.reduce import *
from .functions.softmax import *
from .functions.sort import *
from .functions.sparse import *
from .functions.special import *
from .functions.split import *
from .functions.views import *
