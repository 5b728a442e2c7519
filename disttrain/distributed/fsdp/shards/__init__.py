"""A unit's parameters and gradients: which part a rank keeps, where it lies, how the whole comes
about.

``layout`` says who has what (pure), ``members`` and ``params`` what a parameter is, ``weights`` and
``gradients`` move them; ``shared_weights`` and ``window_weights`` are ways for ranks of one host.
"""

__outward__ = ()  # it is done by effects
