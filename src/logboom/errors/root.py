"""The root of the tree of errors: whatever Logboom raises on purpose can be caught as this."""

from __future__ import annotations


class LogboomError(Exception):
    """The root of the tree."""

    __slots__ = ("audited", "counted")
    counted: bool
    """Set where it is among a node's rejections: whoever passes it on does not count it again. None of its data."""
    audited: bool
    """The same of a node's audit trail."""
