"""Is a data directory well, and what can be done where it is not: check, repair, doctor.

`survey` reads a log across damage, `verdict` says what that means, `check` does both for a directory. `repair` plans,
`mending` does. `doctor` adds what surrounds the logs: names, owners, space, hooks, scrubs.
"""
