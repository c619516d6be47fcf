"""Puts the files that take longest first: where a file runs on one worker, none has a long one left at the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def put_first(items: list[pytest.Item], folder: str, files: Sequence[str]) -> None:
    """In the order of their names here; what is not named, and other folders, keep their order behind them."""
    ranks = {f"tests/{folder}/{file}.py": rank for rank, file in enumerate(files)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
