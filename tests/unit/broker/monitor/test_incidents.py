"""What was refused or went wrong is remembered once each, in bounded memory, from any thread."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Incident, Part, ReadRequest
from logboom.broker.limits import Rejections
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.incidents import INCIDENTS_MAX, LOGGERS, SAME_MAX, TEXT_MAX, Incidents, listening
from logboom.errors import InvalidCursorName, LimitExceeded, LogReadOnly, SyncFailed, TopicNotAllowed, TopicNotFound
from logboom.storage.files.disk import OsDisk
from support.disks.gated import GatedDisk


def texts(incidents: Incidents) -> list[str]:
    return [incident.text for incident in incidents.recent()]


def test_the_same_again_is_counted_and_comes_to_the_front() -> None:
    incidents = Incidents()
    for text in ("a", "b", "a", "a"):
        incidents.note("warning", "upkeep", text)
    newest, older = incidents.recent()
    assert (newest.kind, newest.name, newest.text, newest.count) == ("warning", "upkeep", "a", 3)
    assert newest.first <= newest.last
    assert (older.text, older.count) == ("b", 1)


def test_what_differs_in_kind_name_or_text_is_another_incident() -> None:
    incidents = Incidents()
    incidents.note("warning", "broker", "x")
    incidents.note("error", "broker", "x")
    incidents.note("warning", "server", "x")
    incidents.note("warning", "broker", "y")
    assert [incident.count for incident in incidents.recent()] == [1, 1, 1, 1]


def test_of_many_those_not_seen_for_the_longest_go_first() -> None:
    incidents = Incidents()
    for number in range(INCIDENTS_MAX):
        incidents.note("rejection", f"rule {number}", "no")
    incidents.note("rejection", "rule 0", "no")
    incidents.note("rejection", "one more", "no")
    names = [incident.name for incident in incidents.recent()]
    assert len(names) == INCIDENTS_MAX
    assert names[:2] == ["one more", "rule 0"]
    assert "rule 1" not in names


def test_a_flood_of_one_name_displaces_its_own_and_no_others() -> None:
    incidents = Incidents()
    incidents.note("error", "broker", "the disk is on fire")
    for number in range(10 * INCIDENTS_MAX):
        incidents.note("rejection", "TopicNotFound", f"there is no topic {number}")
    assert len(incidents.recent()) == SAME_MAX + 1
    assert texts(incidents)[0] == f"there is no topic {10 * INCIDENTS_MAX - 1}"
    assert texts(incidents)[-1] == "the disk is on fire"


def test_names_and_texts_that_all_differ_stay_bounded() -> None:
    incidents = Incidents()
    for number in range(20 * INCIDENTS_MAX):
        incidents.note("rejection", f"rule {number % 700}", f"{number}" * 1000)
    assert len(incidents.recent()) == INCIDENTS_MAX
    assert max(map(len, texts(incidents))) == TEXT_MAX


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("größe ✓", "größe ✓"),
        ("\ud800", "\\ud800"),
        ("\u202e" * TEXT_MAX, ("\\u202e" * TEXT_MAX)[:TEXT_MAX]),
    ],
    ids=["newline", "escape", "letters", "surrogate", "long"],
)
def test_what_a_terminal_would_obey_is_made_visible(said: str, shown: str) -> None:
    incidents = Incidents()
    incidents.note("rejection", "rule", said)
    assert texts(incidents) == [shown]


def test_a_rejection_is_counted_by_name_and_noted_with_its_text() -> None:
    rejections = Rejections()
    rejections.note(LimitExceeded("limits.topics", 5, "delete some"))
    rejections.note(LogReadOnly("t/0", "damaged"))
    assert rejections.count("accept", "no more") == 1
    assert rejections.count("accept", "no more") == 2
    assert dict(rejections) == {"limits.topics": 1, "LogReadOnly": 1, "accept": 2}
    names = [(incident.kind, incident.name, incident.count) for incident in rejections.incidents.recent()]
    assert names == [
        ("rejection", "accept", 2),
        ("rejection", "LogReadOnly", 1),
        ("rejection", "limits.topics", 1),
    ]
    assert "limits.topics" in texts(rejections.incidents)[2]


def test_what_a_client_misspells_is_counted_and_crowds_out_no_trouble() -> None:
    rejections = Rejections()
    rejections.note(LogReadOnly("t/0", "damaged"))
    for number in range(10 * INCIDENTS_MAX):
        rejections.note(TopicNotFound(f"t{number}", "this node"))
        rejections.note(InvalidCursorName(f"{number} "))
    assert dict(rejections) == {"LogReadOnly": 1, "TopicNotFound": 2000, "InvalidCursorName": 2000}
    assert [incident.name for incident in rejections.incidents.recent()] == ["LogReadOnly"]


def test_warnings_and_errors_of_the_loggers_are_noted_while_somebody_listens() -> None:
    incidents = Incidents()
    logger = logging.getLogger("logboom.upkeep")
    with listening(incidents):
        logger.info("all is well")
        logger.warning("%s fails", "a hook")
        try:
            raise OSError(5, "cannot be")
        except OSError:
            logger.exception("upkeep failed")
        logging.getLogger("asyncio").error("nobody expected this")
        logging.getLogger("other").error("not ours")
    logger.warning("nobody listens")
    found = [(incident.kind, incident.name, incident.text) for incident in incidents.recent()]
    assert found == [
        ("error", "asyncio", "nobody expected this"),
        ("error", "upkeep", "upkeep failed: OSError: [Errno 5] cannot be"),
        ("warning", "upkeep", "a hook fails"),
    ]


def test_nobody_listens_any_more_after_a_listener_has_failed() -> None:
    before = [list(logging.getLogger(name).handlers) for name in LOGGERS]

    def fail() -> None:
        with listening(Incidents()):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [list(logging.getLogger(name).handlers) for name in LOGGERS] == before


def test_threads_lose_no_count() -> None:
    incidents = Incidents()

    def note() -> None:
        for number in range(2_000):
            incidents.note("warning", "broker", f"text {number % 7}")

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(incident.count for incident in incidents.recent()) == 8_000


def test_what_the_garbage_collector_makes_a_logger_say_is_noted_too() -> None:
    incidents = Incidents()
    logger = logging.getLogger("logboom.broker")

    class Dying:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            logger.warning("left alone")

    before = gc.get_threshold()
    with listening(incidents):
        gc.set_threshold(1)
        try:
            for number in range(200):
                Dying()
                incidents.note("rejection", f"rule {number}", "no")
        finally:
            gc.set_threshold(*before)
        gc.collect()
        incidents.note("rejection", "the last", "no")
    counts = {incident.name: incident.count for incident in incidents.recent()}
    assert counts["broker"] > 100
    assert "the last" in counts


def test_a_broker_tells_what_it_refused_and_what_it_warned_of(tmp_path: Path) -> None:
    async def story() -> list[Incident]:
        broker = await LocalBroker.open(str(tmp_path / "data"))
        try:
            for _ in range(2):
                with pytest.raises(TopicNotAllowed):
                    await broker.create_topic("_mine")
            with pytest.raises(TopicNotFound):
                await broker.read(ReadRequest("nobody"))
            logging.getLogger("logboom.server").warning("something is odd")
            return await broker.incidents()
        finally:
            await broker.close()
            logging.getLogger("logboom.server").warning("closed")
            assert len(await broker.incidents()) == 2

    before = list(logging.getLogger("logboom").handlers)
    odd, refused = asyncio.run(story())
    assert (odd.kind, odd.name, odd.text) == ("warning", "server", "something is odd")
    assert (refused.kind, refused.name, refused.count) == ("rejection", "TopicNotAllowed", 2)
    assert logging.getLogger("logboom").handlers == before


class ForgetfulDisk(OsDisk):
    """Cannot list the topics for a second time."""

    listed = 0

    def list(self, path: str) -> list[str]:
        self.listed += path.endswith("/topics")
        if self.listed > 1:
            raise OSError(5, "it was here a moment ago")
        return super().list(path)


def test_a_broker_that_cannot_be_opened_listens_to_nothing_any_more(tmp_path: Path) -> None:
    before = list(logging.getLogger("logboom").handlers)
    asyncio.run(_open_and_close(tmp_path))
    with pytest.raises(OSError, match="a moment ago"):
        asyncio.run(_open_and_close(tmp_path, ForgetfulDisk(str(tmp_path))))
    assert logging.getLogger("logboom").handlers == before


async def _open_and_close(path: Path, disk: OsDisk | None = None) -> None:
    await (await LocalBroker.open(str(path), disk=disk)).close()


SPEAKING = """
import logging
from logboom.broker.monitor.incidents import Incidents, listening
with listening(Incidents()), listening(Incidents()):
    logging.getLogger("asyncio").error("of the program")
    logging.getLogger("logboom.broker").warning("of the node")
    logging.getLogger("logboom.broker").info("of no interest")
    logging.basicConfig(format="set up: %(message)s")
    logging.getLogger("logboom.broker").warning("of the node")
"""


def test_a_program_that_has_set_up_no_logging_hears_what_it_would_hear_without_a_listener() -> None:
    done = subprocess.run([sys.executable, "-c", SPEAKING], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["of the program", "of the node", "set up: of the node"]


def test_a_thread_that_speaks_while_it_notes_waits_for_no_other_that_speaks() -> None:
    incidents = Incidents()
    inside, speaking = threading.Event(), threading.Event()
    logger = logging.getLogger("logboom.broker")

    class Slow(str):
        __slots__ = ()

        def __hash__(self) -> int:
            if not inside.is_set():
                inside.set()
                assert speaking.wait(300)
                time.sleep(0.05)  # the other one is about to note its own
                logger.warning("while it notes")
            return hash(str(self))

    def speak() -> None:
        assert inside.wait(300)
        speaking.set()
        logger.warning("meanwhile")

    with listening(incidents):
        threads = [
            threading.Thread(target=incidents.note, args=("rejection", Slow("rule"), "no"), daemon=True),
            threading.Thread(target=speak, daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
    assert set(texts(incidents)) == {"no", "while it notes", "meanwhile"}


def test_an_error_that_is_kept_counts_for_everybody_it_is_said_to(tmp_path: Path) -> None:
    async def story() -> None:
        disk = GatedDisk(str(tmp_path))
        broker = await LocalBroker.open(str(tmp_path), disk=disk)
        try:
            await broker.create_topic("t")
            disk.failing = True
            await broker.append([Part("t", [build([b"x"])])], "durable")
            before = broker.rejections["LogReadOnly"]
            for _ in range(3):
                (answer,) = await broker.append([Part("t", [build([b"x"])])])
                assert isinstance(answer, LogReadOnly)
            for _ in range(2):
                with pytest.raises(LogReadOnly):
                    await broker.create_topic("u")
            assert broker.rejections["LogReadOnly"] == before + 5
            assert max(incident.count for incident in await broker.incidents()) >= 5
        finally:
            with suppress(SyncFailed):
                await broker.close()

    asyncio.run(story())
