"""Primitives that factor matrices, and those that use factors. All take (..., m, n), floating or
complex, and compute in that type; ``dt.linalg`` loads them.

    qr            orthogonal and triangular: QR and the reflectors of its algorithm
    cholesky      positive definite matrices
    eigen         eigenvalues and eigenvectors, of Hermitian matrices and of any
    lu            lower and upper triangular, with exchanged rows
    triangular    what solves with triangular matrices
    indefinite    symmetric matrices that are not definite
    pseudoinverse the pseudoinverse of Moore and Penrose
    exponential   the exponential of matrices
"""
