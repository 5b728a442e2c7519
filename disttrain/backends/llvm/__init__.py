"""How kernels become machine code: LLVM text, the compiler, object files and their cache."""
