"""What moves arrays between the ranks of a group: a folder each, and the choice among them.

``calls.transport`` says what each of them promises. None knows another one but shared memory.
"""
