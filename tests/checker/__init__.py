"""Finds what must never happen to a log in what its writers and readers have noted down.

    python -m checker history.jsonl...

Each process writes its own history; the checker reads all of them together. A history is JSON lines, see `history`; the
rules are in `rules`.
"""

from checker.history import Recorder, identity, make_value, read_histories
from checker.rules import Anomaly, Report, check

__all__ = ["Anomaly", "Recorder", "Report", "check", "identity", "make_value", "read_histories"]
