"""A unit's parameters and gradients: which part a rank keeps, where it lies, how the whole comes about."""
