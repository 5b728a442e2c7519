"""The options of ``dtrun`` as data: read from a command line, handed on to another."""
