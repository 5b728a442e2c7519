"""Ways of training that are applied to a module, which stays what it is."""

from .contract import _get_registry, contract
from .replicate import replicate
