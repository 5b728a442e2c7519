"""The flat list of public functions: what ``dt.<name>`` and the Tensor methods are taken from."""

from .functions.comparing import *
from .functions.creation.create import *
from .functions.creation.data import *
from .functions.creation.sparse import *
from .functions.einsum import *
from .functions.elementwise import *
from .functions.gathering import *
from .functions.linalg import *
from .functions.nn.attention import *
from .functions.nn.conv import *
from .functions.nn.embedding import *
from .functions.nn.loss import *
from .functions.nn.norm import *
from .functions.nn.padding import *
from .functions.nn.pool import *
from .functions.nn.softmax import *
from .functions.random import *
from .functions.reduce import *
from .functions.sort import *
from .functions.special import *
from .functions.views.aliases import *
from .functions.views.join import *
from .functions.views.memory_formats import *
from .functions.views.shapes import *
from .functions.views.split import *
