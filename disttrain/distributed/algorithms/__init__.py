"""Ways of training on many ranks beside plain averages: hooks that reduce gradients, averages of
models."""
