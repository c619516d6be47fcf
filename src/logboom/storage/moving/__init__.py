"""Moving logs: as one portable stream out of a data directory, and into another.

Read `outline` for what a dump says, `stream` and `contents` for how it is read, `dump`, and `load` for both ways back.
"""
