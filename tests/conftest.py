from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("logboom", deadline=None, print_blob=True)
settings.load_profile("logboom")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run only when asked for: `pytest -m soak`."""
    if "soak" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long: pytest -m soak"))
