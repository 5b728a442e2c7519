"""Functions of a program's arrays (see ``arrays.lifting``) that no row of a table can say: those
that make arrays, take functions, update copies or give numbers of Python's."""
