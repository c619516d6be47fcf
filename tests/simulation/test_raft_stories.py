"""Stories that a group lives through, line by line: tests/simulation/stories.

Write them anew from what happens:  LOGBOOM_REWRITE=1 pytest tests/simulation/test_raft_stories.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.raft.story import tell

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_happens_as_it_is_told(story: Path) -> None:
    told = tell(story)
    if os.environ.get("LOGBOOM_REWRITE"):
        story.write_text(told)
    assert told == story.read_text()


def test_there_are_stories() -> None:
    assert len(STORIES) > 8
