"""Functions of arrays that NumPy's and SciPy's users know and ``dt`` has not under PyTorch's names:
polynomials, sets of a fixed size, interpolation, filters, structured matrices, special functions.
All are made of operations of ``ops``, so that each has derivatives, batches and is captured."""
