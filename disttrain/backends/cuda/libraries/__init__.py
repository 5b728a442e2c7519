"""Products of matrices and convolutions by NVIDIA's libraries."""
