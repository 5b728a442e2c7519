"""Guards: what Python looked at while a program was captured, and whether it is still the same.

watch       what runs, and what it asks of the world
code        what bytecode looks up
kinds       whose code and objects they are
reach       what the program can see, found by the names in its code
holders     comparing all that at every call
readers     what some holders read
record      what holders hold, taken down for one native pass
arguments   a call as a key
"""
