"""Every test of nn starts from the same random numbers."""

import pytest

from disttrain.core import random


@pytest.fixture(autouse=True)
def _seeded():
    random.manual_seed(0)
