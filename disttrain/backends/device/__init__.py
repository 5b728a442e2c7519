"""Arrays in the memory of an accelerator, and what one kind of accelerator gives."""
