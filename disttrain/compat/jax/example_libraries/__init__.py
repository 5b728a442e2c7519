"""``jax.example_libraries``: small optimizers and layers as pairs and triples of functions."""
