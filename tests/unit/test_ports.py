"""The tests' own ports: no two processes of any run are given the same."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from support.nodes.process import free_port


def test_processes_that_ask_at_once_are_given_different_ports() -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        given = list(pool.map(_ports, [100] * 4))
    assert len(set().union(*given)) == 400


def _ports(count: int) -> set[int]:
    return {free_port() for _ in range(count)}
