"""Arrays in the memory of an accelerator, what one kind of accelerator gives, and kernels that are
written for devices by hand (``codes``)."""
