"""Functions that layers are made of: convolutions, normalisations, losses, attention."""
