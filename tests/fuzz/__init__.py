"""Sound bytes bent by a seed, through every reader: a typed error, or a value; never a crash.

`make fuzz` runs the counts that a release must stand; the tests here run a small part of each.
"""
