"""What averages gradients: buckets, the memory they lie in, and when they travel."""
