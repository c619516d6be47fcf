"""The screen of `logboom top`."""
