"""Files of PyTorch: its archives and its older files, read without unpickling, and written.

    archive    the zip: where each record lies, proved to lie in the file
    opcodes    the pickle in it, followed by a machine that makes data alone
    storages   tensors over the bytes of records
    reading    the two formats
    writing    state dicts in the newer one

Nothing that a file names is imported, and nothing of it is called: the names that PyTorch's
``weights_only`` loader allows are entries of a table here.
"""
