"""What ``torch`` has at its top level: names, settings and types of its own, old constructors, and
functions in spellings that the package itself does not have."""
