"""Functions that factor matrices and that use factors. ``dt.linalg`` and ``ops.later`` load them.

checks          what their arguments must be
decompositions  QR, Cholesky, eigenvalues, LU, LDL, reflections
solving         equations, inverses, least squares, exponentials
low_rank        decompositions by chance, and a few eigenvalues by iteration
older           the same under the names that PyTorch had for them before ``linalg``
"""
