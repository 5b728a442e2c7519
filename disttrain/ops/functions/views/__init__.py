"""Functions that see or arrange the same elements in another way."""
