"""What is archived of the logs in a data directory: read from its `_pipeline`, straight from the files.

Read on each time somebody asks. A directory without that log, or one in which nobody can make sense of it, has no
archive: whoever wants records that only an archive has is told that they are gone.
"""

from __future__ import annotations

from contextlib import suppress

from logboom.broker.api import PIPELINE_TOPIC
from logboom.errors import LogboomError
from logboom.results.archived import ArchivedLogReader, find_archives
from logboom.results.pipeline_state import PipelineState
from logboom.storage.data.state import StateReader
from logboom.storage.data.topic import find_topic
from logboom.storage.files.disk import OsDisk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.view import LogGone, LogView

FILES_MAX = 4


class FileArchives:
    """One thread at a time."""

    def __init__(self, disk: OsDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files = OpenFiles(disk, FILES_MAX)
        self._view: LogView | None = None
        self._pipeline = PipelineState()
        self._found: dict[tuple[str, int], ArchivedLogReader] = {}

    def find(self, topic_id: str, partition: int, stored: int, floor: int) -> ArchivedLogReader | None:
        """What there is of a log whose own records begin with `stored`, if it has all between its floor and those."""
        found = self.get(topic_id, partition) if floor < stored else None
        return found if found is not None and max(found.first, floor) < stored <= found.until else None

    def get(self, topic_id: str, partition: int) -> ArchivedLogReader | None:
        with suppress(LogGone, LogboomError, OSError):
            self._refresh()
        return self._found.get((topic_id, partition))

    def _refresh(self) -> None:
        if self._view is None:
            topic = find_topic(self._disk, self._directory, PIPELINE_TOPIC)
            if topic is None:
                return
            states = StateReader(self._disk, f"{self._directory}/state")
            path = f"{self._directory}/{topic.log_name(0)}"
            self._view = LogView.open(self._files, path, states, topic.id_bytes, 0)
        elif not self._view.refresh():
            return
        view = self._view
        if view.committed < self._pipeline.next:
            self._pipeline = PipelineState()  # an older copy has taken the place of the directory
        known = self._pipeline
        # What was trimmed stands in the event that the log begins with.
        for batch in view.batches(max(known.next, view.first), skip_damage=True):
            known.fold(record for record in batch.records() if (record.seqno or 0) >= known.next)
        before, self._found = self._found, find_archives(known, self.get)
        for log, archived in before.items():
            now = self._found.get(log)
            if now is not None and now.run == archived.run:
                self._found[log] = archived  # it may have read its manifest

    def close(self) -> None:
        self._files.clear()
        self._view = None
        self._pipeline = PipelineState()
