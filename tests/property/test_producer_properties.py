"""What a log remembers of its producers, against all that ever wrote to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.batch import Batch, Producer, build
from logboom.batch.header import ISSUED_IDS
from logboom.errors import LogboomError, ProducerForgotten
from logboom.storage import Appended, LogConfig
from support.disks.simulated import SimulatedDisk
from support.simulation.model import open_log

CONFIG = LogConfig(segment_bytes=4096, producers_max=3)
Step = tuple[str, int]


def batch_of(number: int, seq: int) -> Batch:
    return build([b"%d/%d" % (number, seq)], producer=Producer(ISSUED_IDS + number, 0, seq))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["new", "next", "repeat", "roll", "kill"]), st.integers(0, 12), st.integers(0, 10**15)
        ),
        max_size=60,
    )
)
def test_nothing_that_a_producer_with_a_given_id_has_written_is_appended_again(
    steps: list[tuple[str, int, int]],
) -> None:
    """Whatever else is written, in whatever order, at whatever times; and a producer with a higher id is taken."""
    disk = SimulatedDisk()
    log = open_log(disk, CONFIG)
    written: dict[int, int] = {}
    highest, expected, now = 0, list[bytes](), 0
    for what, number, moment in steps:
        now = max(now, moment)
        if what == "roll":
            log.commit(log.sync())
            log.roll()
        elif what == "kill":
            log.commit(log.sync())
            disk.kill()
            log = open_log(disk, CONFIG)
        elif what == "new":
            highest += 1
            (answer,) = log.append([batch_of(highest, 0)], now)
            assert isinstance(answer, Appended)
            assert not answer.repeat
            written[highest] = 1
            expected.append(b"%d/0" % highest)
        elif number in written:
            seq = written[number] if what == "next" else number % written[number]
            (answer,) = log.append([batch_of(number, seq)], now)
            if what == "repeat":
                assert isinstance(answer, LogboomError) or answer.repeat
            elif isinstance(answer, Appended):
                written[number] += 1
                expected.append(b"%d/%d" % (number, seq))
            else:
                assert isinstance(answer, ProducerForgotten)
    log.commit(log.sync())
    assert [value for batch in log.batches() for value in batch.values()] == expected
