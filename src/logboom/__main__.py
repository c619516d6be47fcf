"""`python -m logboom` is `logboom`."""

from logboom.cli import main

main()
