"""Verifies data directories, replicas and archives: every batch is read, by as many as Spark has room for.

    plan → segments examined in tasks → logs judged, replicas compared → archived files compared → problems.json

What is wrong with data is the result of a run, not its failure: it is published like any other, and says how many
problems there are and which are the first. A run fails where it cannot look: a directory that is not there, or is
not one of ours, or a topic that none has. A run that is killed leaves nothing; the next one begins anew.

The directories are read where the tasks run, and planned where the driver runs: both must see them under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from logboom.client import FileReader
from logboom.client.node_catalog import NodeCatalog
from logboom.client.values import near_names
from logboom.errors import ConfigError, Damage, LogboomError, ResultsUnreadable, SeqnoOutOfRange, TopicNotFound
from logboom.results.archive import MANIFEST, ArchiveManifest, decode_manifest, job_id
from logboom.results.pipeline_state import Covered, Result
from logboom.results.places import ResultPlace
from logboom.spark.jobs.choice import check_choice
from logboom.spark.jobs.job_run import JobOutcome, JobRun
from logboom.spark.jobs.tasks import run_tasks
from logboom.verify.archive_likeness import Shelved, check_file, compare_file
from logboom.verify.plan import DirectoryContents, LogPlan, VerifyChoice, VerifyProblem
from logboom.verify.verifier import Verification, VerifyFindings

if TYPE_CHECKING:
    import pyarrow as pa

PROBLEMS: Final = "problems.json"
FIRST_MAX: Final = 10
"""So many problems are told by the result itself; the file has all."""
LISTED_MAX: Final = 10_000

_encode: Final = msgspec.msgpack.Encoder().encode
_shelved: Final = msgspec.msgpack.Decoder(Shelved).decode
_problem: Final = msgspec.msgpack.Decoder(VerifyProblem | None).decode


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a result."""

    directories: tuple[str, ...]
    archived_files: int
    problems: int
    """All there are that mean damage; of those that are listed the others are harmless."""
    listed: tuple[VerifyProblem, ...]


class VerifyWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every batch of data directories, whether replicas are equal, and the archive equal to the log."""

    kind: ClassVar[str] = "verify"

    name: str = "all"
    """What the verification is called: letters, digits, `.`, `_` and `-`."""
    directories: tuple[str, ...] = ()
    """Data directories. Several are replicas, and compared. Without any, that of the node."""
    topics: tuple[str, ...] = ()
    """The topics to look at. Without any, and without a pattern, all."""
    pattern: str | None = None
    """And those whose whole name this regular expression matches."""
    archive: bool = True
    """Whether archived files are read too, and compared with what the first directory still has of them."""
    from_disk: bool = False
    """Whether what the system has of the files in memory is dropped before they are read. Readers of a running node
    are slower for a while then."""

    @property
    def id(self) -> str:
        return f"verify/{self.name}"

    def check(self) -> None:
        """Raises ConfigError."""
        check_choice(self.name, self.pattern)

    def do(self, run: JobRun) -> JobOutcome:
        self.check()
        return _Verifying(self, run).verify()


class _Verifying:
    """One run."""

    def __init__(self, work: VerifyWork, run: JobRun) -> None:
        self._work = work
        self._run = run

    def verify(self) -> JobOutcome:
        work, run = self._work, self._run
        directories = work.directories or (_directory_of_node(run),)
        wanted = VerifyChoice(work.topics, work.pattern, from_disk=work.from_disk)
        run.progress.doing = "reads the logs"
        verification = Verification(directories, wanted, self._execute, self._progress)
        found = verification.run()
        _check_topics(work.topics, verification.holdings)
        holding = verification.holdings[0]
        archived = self._compare_archives(holding, found) if work.archive else 0
        run.check()
        return self._outcome(verification.holdings, found, archived)

    def _execute(
        self, function: Callable[[bytes], bytes], pieces: Sequence[bytes], on_progress: Callable[[int], None]
    ) -> list[bytes]:
        self._run.check()
        return run_tasks(self._run.spark(), function, pieces, on_progress) if pieces else []

    def _progress(self, done: int, total: int) -> None:
        self._run.progress.done, self._run.progress.total = done, total

    def _compare_archives(self, holding: DirectoryContents, found: VerifyFindings) -> int:
        """How many files there are; what is wrong with them goes to the findings."""
        run, shelved = self._run, []
        for topic in holding.topics:
            result = run.lease.pipeline.result(job_id(topic.name))
            if result is None or result.covers.get(topic.name, Covered("", {})).topic_id != topic.id:
                continue
            try:
                manifest = _read_manifest(result)
            except ResultsUnreadable as error:
                found.problems.append(_unreadable(result, topic.name, error))
                continue
            logs = {log.partition: log for log in holding.logs if log.topic_id == topic.id}
            shelved += _shelve(result, manifest, holding.path, logs)
        run.progress.doing = "reads the archive"
        total = sum(piece.file.size for piece in shelved)
        self._progress(0, total)
        answers = self._execute(
            compare_encoded,
            [_encode(piece) for piece in shelved],
            lambda done: self._progress(total * done // max(1, len(shelved)), total),
        )
        found.problems += [problem for answer in answers if (problem := _problem(answer)) is not None]
        return len(shelved)

    def _outcome(self, holdings: list[DirectoryContents], found: VerifyFindings, archived: int) -> JobOutcome:
        damage = found.damage
        harmless = len(found.problems) - len(damage)
        listed = (damage + [problem for problem in found.problems if problem.severity != "damage"])[:LISTED_MAX]
        report = Problems(
            directories=tuple(holding.path for holding in holdings),
            archived_files=archived,
            problems=len(damage),
            listed=tuple(listed),
        )
        content = msgspec.json.format(msgspec.json.encode(report), indent=2)
        summary: dict[str, Any] = {
            "logs": found.logs,
            "segments": found.segments,
            "batches": found.batches,
            "records": found.records,
            "bytes": found.bytes,
            "problems": len(damage),
            "harmless": harmless,
        }
        if found.lost:
            summary["lost_records"] = found.lost
        if len(holdings) > 1:
            summary["compared_batches"] = found.compared
        if archived:
            summary["archived_files"] = archived
        if damage:
            summary["first_problem"] = str(damage[0])
        return JobOutcome(
            covers=_covers(holdings[0]),
            manifest=self._run.place.write(PROBLEMS, content),
            records=found.records,
            bytes=found.bytes,
            facts={"problems": len(damage), "harmless": harmless, "first": [str(each) for each in listed[:FIRST_MAX]]},
            summary=summary,
        )


def _check_topics(names: Sequence[str], holdings: Sequence[DirectoryContents]) -> None:
    """What is asked for by name and is nowhere was not verified."""
    there = {topic.name for holding in holdings for topic in holding.topics}
    for name in names:
        if name not in there:
            raise TopicNotFound(name, " and ".join(holding.path for holding in holdings), near_names(name, there))


def compare_encoded(shelved: bytes) -> bytes:
    """What is wrong with an archived file."""
    piece = _shelved(shelved)
    return _encode(check_file(piece) or compare_file(piece, _read_log(piece)))


def _read_log(shelved: Shelved) -> Iterator[pa.Table]:
    """What the log has of these records. Damage in it is told by who examines the log."""
    if shelved.seqno_from >= shelved.seqno_until:
        return
    try:
        with FileReader(
            shelved.directory, shelved.topic, shelved.file.partition, seqno=shelved.seqno_from, gaps="skip"
        ) as reader:
            if reader.topic.id == shelved.topic_id:
                for table in reader.tables(until=shelved.seqno_until):
                    if len(table):
                        yield table
    except (Damage, SeqnoOutOfRange):
        return


def _directory_of_node(run: JobRun) -> str:
    catalog = NodeCatalog(run.servers)
    try:
        catalog.find([])
        directory = catalog.directory
    finally:
        catalog.close()
    if directory is None:
        raise ConfigError("directories", "the node does not say where its data is: name its data directory")
    return directory


def _read_manifest(result: Result) -> ArchiveManifest:
    if result.manifest is None:
        raise ResultsUnreadable(f"{result.place}: the archive has no manifest")
    try:
        return decode_manifest(ResultPlace(result.place).read(result.manifest))
    except msgspec.MsgspecError as error:
        raise ResultsUnreadable(f"{result.place}/{result.manifest.path}: {error}") from None


def _unreadable(result: Result, topic: str, error: LogboomError) -> VerifyProblem:
    file = f"{result.place}/{MANIFEST}"
    return VerifyProblem(kind="archive", directory=result.place, topic=topic, file=file, reason=str(error))


def _shelve(result: Result, manifest: ArchiveManifest, directory: str, logs: dict[int, LogPlan]) -> list[Shelved]:
    """Each file, with what the log still has of it."""
    home, found = result.place.rsplit("/", 2)[0], []
    for file in (*manifest.files, *manifest.cut_off):
        log = logs.get(file.partition)
        standing = None if log is None else log.standing
        first, committed = (0, 0) if standing is None else (standing.first, standing.committed)
        found.append(
            Shelved(
                home=home,
                file=file,
                directory=directory,
                topic=manifest.topic,
                topic_id=manifest.topic_id,
                seqno_from=max(file.seqno_from, first),
                seqno_until=min(file.seqno_until, committed),
            )
        )
    return found


def _covers(holding: DirectoryContents) -> dict[str, Covered]:
    covers = {}
    for topic in holding.topics:
        spans = {
            log.partition: (log.standing.first, log.standing.committed)
            for log in holding.logs
            if log.topic_id == topic.id and log.standing is not None
        }
        covers[topic.name] = Covered(topic.id, spans)
    return covers
