"""Products of matrices where a BLAS is slow, or has none."""
