"""A node whose configuration names every command by itself: for tests of what hooks do, not of who may choose them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logboom.broker.allowances import Allowances


class _Shell(Mapping[str, str]):
    def __getitem__(self, name: str) -> str:
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ANY_HOOK = Allowances(_Shell())
