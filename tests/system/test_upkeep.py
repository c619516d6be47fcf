"""`logboom upkeep` as a real process: exit codes, output, real hooks, SIGKILL and Ctrl-C at the worst moments."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.errors import DirectoryInUse
from logboom.storage import DataDirectory
from logboom.storage.data.topic import HookSettings, RecompressionSettings, RetentionSettings, Settings
from logboom.storage.files.disk import OsDisk
from logboom.storage.health.check import check
from support.nodes.warm import run_warm
from support.waiting import wait_until

COMMAND = (sys.executable, "-c", "from logboom.cli import main; main()")
KILLED_BEFORE_THE_DROP = """\
import os, signal
from logboom.storage.log import Log
drop = Log.drop
Log.drop = lambda log, seqno: os.kill(os.getpid(), signal.SIGKILL) if seqno > 0 else drop(log, seqno)
from logboom.cli import main
main()
"""
CANNOT_BE_CLOSED = """\
from logboom.errors import SyncFailed
from logboom.storage import DataDirectory
close = DataDirectory.close
def fail(data):
    close(data)
    raise SyncFailed("the disk is gone")
DataDirectory.close = fail
from logboom.cli import main
main()
"""
SEGMENTS, RECORDS = 4, 50
KEEP_ONE = RetentionSettings(records=RECORDS)


def value(seqno: int) -> bytes:
    return b"%d is followed by more and more and more of the same" % seqno


def make(
    path: Path,
    hook: str | None = None,
    retention: RetentionSettings = KEEP_ONE,
    segments: int = SEGMENTS,
    timeout_ms: int = 60_000,
    backoff_ms: int = 1,
) -> Path:
    """A data directory with one topic of so many sealed segments, closed properly; beside it a configuration."""
    Path(f"{path}.toml").write_text("" if hook is None else f"[hooks]\nthis = {json.dumps(hook)}\n")
    settings = Settings(
        retention=retention,
        hook=HookSettings(delete=None if hook is None else "this", timeout_ms=timeout_ms, backoff_ms=backoff_ms),
        recompression=RecompressionSettings(codec="zstd"),
    )
    with DataDirectory.open(str(path)) as data:
        data.create_topic("events", 1, settings)
        (log,) = data.open_topic("events")
        for number in range(segments):
            log.append_one(build([value(number * RECORDS + offset) for offset in range(RECORDS)]), 1 + number)
            data.sync()
            log.roll()
    return path


def configured(arguments: tuple[str | Path, ...]) -> list[str]:
    """With the configuration of the directory that comes last, if it has one."""
    file = Path(f"{arguments[-1]}.toml")
    return [*map(str, arguments), *(["--config", str(file)] if file.exists() else [])]


def logboom(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_warm(configured(arguments), text=True)


def start(*arguments: str | Path, command: tuple[str, ...] = COMMAND) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *configured(arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path) -> None:
    """Made by a hook."""
    wait_until(path.exists, f"a hook to make {path.name}", every_s=0.005)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def take(path: Path) -> DataDirectory:
    """The child of a killed process has its lock too, for the moment between its fork and its exec."""
    while True:
        try:
            return DataDirectory.open(str(path))
        except DirectoryInUse:
            time.sleep(0.005)


def rows(path: Path) -> list[int]:
    """The seqnos that are there, each with the right value; a check finds nothing wrong."""
    assert not check(OsDisk(str(path)), str(path)).damaged
    with take(path) as data:
        (log,) = data.open_topic("events")
        assert log.recovered.missing is None
        found = [row for batch in log.batches() for row in zip(batch.seqnos(), batch.values(), strict=True)]
    assert all(what == value(seqno) for seqno, what in found)
    return [seqno for seqno, _ in found]


def is_running(path: Path) -> bool:
    """Whether the process whose number this file holds is still there, and is not just waiting to be reaped."""
    try:
        stat = Path(f"/proc/{int(path.read_text())}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def gate(tmp_path: Path) -> str:
    """A hook that says that it runs, and goes on when the file `go` is there."""
    return (
        f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said; touch {tmp_path}/started; "
        f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done"
    )


def test_everything_that_is_due_is_done_and_summed_up(tmp_path: Path) -> None:
    path = make(tmp_path / "data", f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said")
    done = logboom("upkeep", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(tmp_path / "said") == ["0", "50", "100"]
    said = done.stdout.splitlines()
    assert said[0].startswith("dropped by records: 3 segments, ")
    assert said[1] == "hooks: 3 run, 0 failed, 0 waiting"
    assert said[2].startswith("recompressed: 1 segment, ")
    assert said[3].startswith("scrubbed: ")
    assert said[-1] == "done"
    assert rows(path) == list(range(150, 200))
    again = logboom("upkeep", "--quiet", path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_each_hook_runs_at_most_once_and_a_failing_one_exits_with_1(tmp_path: Path) -> None:
    path = make(tmp_path / "data", f"echo x >> {tmp_path}/said; echo no room; exit 3")
    done = logboom("upkeep", path)
    assert done.returncode == 1
    assert len(lines(tmp_path / "said")) == 1
    assert "events/0, seqnos 0 to 49: failed once" in done.stdout
    assert "exit code 3: no room" in done.stdout
    assert "the delete hook of seqnos 0 to 49 failed (attempt 1)" in done.stderr
    told = json.loads(logboom("upkeep", "--json", path).stdout)
    assert [hook["attempts"] for hook in told["hooks"]["failing"]] == [2]
    assert rows(path) == list(range(200))


def test_without_the_configuration_segments_are_held_and_named(tmp_path: Path) -> None:
    path = make(tmp_path / "data", f"touch {tmp_path}/said")
    file = Path(f"{path}.toml").rename(tmp_path / "node.toml")
    done = logboom("upkeep", path)
    assert (done.returncode, (tmp_path / "said").exists()) == (1, False)
    assert "  events/0, seqnos 0 to 49 and all that follows: held, nothing was run\n" in done.stdout
    assert "'this' is no hook of this node: [hooks] in its configuration names none" in done.stdout
    assert "--config" in done.stdout
    (held,) = json.loads(logboom("upkeep", "--json", path).stdout)["hooks"]["failing"]
    assert (held["first_seqno"], held["attempts"]) == (0, 0)
    assert rows(path) == list(range(SEGMENTS * RECORDS))
    done = logboom("doctor", "--quiet", path, "--config", file)
    assert "unknown hook" not in done.stdout
    done = logboom("upkeep", path, "--config", file)
    assert (done.returncode, (tmp_path / "said").exists()) == (0, True)
    assert rows(path) == list(range(3 * RECORDS, SEGMENTS * RECORDS))


def test_a_configuration_that_is_wrong_or_not_there_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    path = make(tmp_path / "data")
    (tmp_path / "wrong.toml").write_text("[hooks]\nUpper = 'x'\n")
    for name in ("wrong.toml", "none.toml"):
        done = logboom("upkeep", path, "--config", tmp_path / name)
        assert (done.returncode, done.stdout) == (2, "")


def test_verbose_shows_what_hooks_print(tmp_path: Path) -> None:
    path = make(tmp_path / "data", "echo archived $LOGBOOM_FIRST_SEQNO")
    done = logboom("upkeep", "--verbose", path)
    assert "events/0: hook: archived 50\n" in done.stderr
    assert "events/0: dropped seqnos 50 to 99 (records)\n" in done.stderr


def test_damage_exits_with_1_until_it_is_mended(tmp_path: Path) -> None:
    path = make(tmp_path / "data", retention=RetentionSettings())
    segment = min(path.rglob("*.log"))
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    done = logboom("upkeep", "--scrub", "--no-throttle", path)
    assert done.returncode == 1
    assert f"{segment.name} (seqnos 0 to 49)\n" in done.stdout
    assert "a scrub found damage" in done.stderr
    content[200] ^= 1
    segment.write_bytes(content)
    assert logboom("upkeep", "--scrub", path).returncode == 0


def test_a_directory_in_use_is_refused_and_the_message_says_who_does_the_upkeep(tmp_path: Path) -> None:
    path = make(tmp_path / "data")
    with DataDirectory.open(str(path)):
        done = logboom("upkeep", path)
    assert done.returncode == 2
    assert "is in use by" in done.stderr
    assert "a running server does its upkeep by itself" in done.stderr


def test_what_is_no_data_directory_is_refused_and_not_made_one(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        done = logboom("upkeep", path)
        assert done.returncode == 2
        assert "is not a data directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_hooks_leaves_them_queued_and_closes_the_directory(tmp_path: Path) -> None:
    path = make(tmp_path / "data", gate(tmp_path))
    with start("upkeep", path) as process:
        wait_for(tmp_path / "started")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (130, "logboom: interrupted\n")
    with DataDirectory.open(str(path)) as data:
        assert data.was_clean
    (tmp_path / "go").touch()
    assert logboom("upkeep", path).returncode == 0
    assert lines(tmp_path / "said") == ["0", "0", "50", "100"]
    assert rows(path) == list(range(150, 200))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_end_hooks_as_ctrl_c_does(tmp_path: Path, number: signal.Signals, code: int) -> None:
    path = make(tmp_path / "data", f"echo $$ > {tmp_path}/pid; {gate(tmp_path)}")
    with start("upkeep", path) as process:
        wait_for(tmp_path / "started")
        process.send_signal(number)
        _, said = process.communicate()
    assert (process.returncode, said) == (code, f"logboom: ended by {number.name}\n")
    assert not is_running(tmp_path / "pid")
    with DataDirectory.open(str(path)) as data:
        assert data.was_clean
    (tmp_path / "go").touch()
    assert logboom("upkeep", path).returncode == 0
    assert lines(tmp_path / "said") == ["0", "0", "50", "100"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_leaves_no_hook_behind_that_will_not_end(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    hook = f"trap 'touch {tmp_path}/asked' TERM; echo $$ > {tmp_path}/pid; {gate(tmp_path)}"
    path = make(tmp_path / "data", hook)
    with start("upkeep", path) as process:
        wait_for(tmp_path / "started")
        process.send_signal(number)
        wait_for(tmp_path / "asked")
        process.send_signal(number)
        process.communicate()
    assert process.returncode == code
    assert not is_running(tmp_path / "pid")
    with DataDirectory.open(str(path)) as data:
        assert data.was_clean
    assert rows(path) == list(range(200))


def test_a_signal_that_it_was_started_to_ignore_is_ignored(tmp_path: Path) -> None:
    path = make(tmp_path / "data", gate(tmp_path))
    command = ["nohup", *COMMAND, *configured(("upkeep", path))]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(tmp_path / "started")
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        process.communicate()
    assert process.returncode == 0
    assert rows(path) == list(range(150, 200))


def test_a_directory_that_cannot_be_closed_properly_exits_with_1_after_the_summary(tmp_path: Path) -> None:
    path = make(tmp_path / "data")
    with start("upkeep", path, command=(sys.executable, "-c", CANNOT_BE_CLOSED)) as process:
        said, told = process.communicate()
    assert (process.returncode, told) == (1, "logboom: the disk is gone\n")
    assert said.startswith("dropped by records: 3 segments, ")
    assert said.splitlines()[-1] == "something failed, or is damaged"


def test_a_log_that_lost_its_first_segments_exits_with_1(tmp_path: Path) -> None:
    path = make(tmp_path / "data", retention=RetentionSettings())
    for file in path.rglob(f"{0:020}-*"):
        file.unlink()
    done = logboom("upkeep", path)
    assert done.returncode == 1
    assert "errors: 1, the last one: events/0: " in done.stdout
    assert "the log begins at 0" in done.stdout


def test_on_a_terminal_it_says_what_is_under_way(tmp_path: Path) -> None:
    path = make(tmp_path / "data", gate(tmp_path))
    terminal, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [*COMMAND, *configured(("upkeep", path))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side, env=environment) as process:
        os.close(side)
        seen = b""
        while b"delete hook of events/0, seqnos 0 to 49" not in seen:
            seen += os.read(terminal, 4096)
        (tmp_path / "go").touch()
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:  # its other side is closed
            pass
    os.close(terminal)
    assert process.returncode == 0


def test_a_process_killed_while_a_hook_runs_runs_it_again(tmp_path: Path) -> None:
    path = make(tmp_path / "data", gate(tmp_path))
    with start("upkeep", path) as process:
        wait_for(tmp_path / "started")
        process.kill()
    (tmp_path / "go").touch()
    assert rows(path) == list(range(200))
    assert logboom("upkeep", path).returncode == 0
    assert lines(tmp_path / "said") == ["0", "0", "50", "100"]
    assert rows(path) == list(range(150, 200))


def test_a_process_killed_between_a_recorded_success_and_the_unlink_does_not_run_the_hook_again(
    tmp_path: Path,
) -> None:
    path = make(tmp_path / "data", f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said")
    with start("upkeep", path, command=(sys.executable, "-c", KILLED_BEFORE_THE_DROP)) as process:
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert (lines(tmp_path / "said"), rows(path)) == (["0"], list(range(200)))
    assert logboom("upkeep", path).returncode == 0
    assert lines(tmp_path / "said") == ["0", "50", "100"]
    assert rows(path) == list(range(150, 200))


def kill_again_and_again(tmp_path: Path, kills: int) -> None:
    """Hooks that end at once, swaps and drops; killed at any moment after the directory was taken."""
    chance = random.Random()
    path = make(tmp_path / "data", f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said", segments=40)
    for _ in range(kills):
        with start("upkeep", "--scrub", "--no-throttle", path) as process:
            time.sleep(0.3 + chance.random())
            process.kill()
        left = rows(path)
        assert left == list(range(left[0], 40 * RECORDS))
        assert left[0] % RECORDS == 0
        assert {*range(0, left[0], RECORDS)} <= {int(line) for line in lines(tmp_path / "said")}
    assert logboom("upkeep", "--no-throttle", path).returncode == 0
    assert rows(path) == list(range(39 * RECORDS, 40 * RECORDS))
    ran = [int(line) for line in lines(tmp_path / "said")]
    assert sorted(set(ran)) == list(range(0, 39 * RECORDS, RECORDS))
    assert ran == sorted(ran)
    assert len(ran) <= 39 + kills


def test_upkeep_killed_at_any_moment_loses_nothing_and_skips_no_hook(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 4)


@pytest.mark.soak
def test_upkeep_killed_many_times_loses_nothing_and_skips_no_hook(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 40)


def test_a_hook_that_hangs_is_ended_at_its_time_limit(tmp_path: Path) -> None:
    path = make(tmp_path / "data", "exec sleep 1000", timeout_ms=300)
    done = logboom("upkeep", path)
    assert done.returncode == 1
    assert "took longer than 0.3 s" in done.stdout


def test_the_help_has_examples() -> None:
    done = logboom("upkeep", "--help")
    assert done.returncode == 0
    assert "logboom upkeep --scrub --no-throttle data" in done.stdout
