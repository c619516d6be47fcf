"""What each key of the configuration, and each section, means to whoever runs a node."""

from __future__ import annotations

from typing import Final

from logboom.server.front_ends import FRONT_ENDS, FrontEndKind


def _meaning_of_addresses(kind: FrontEndKind) -> str:
    """The first says it for all."""
    if kind is FRONT_ENDS[0]:
        rest = "port 0 is any free one. There is no authentication: whoever reaches the address may read and write."
    else:
        rest = "an empty list is none. There is no authentication."
    return f"Addresses for {kind.what}, HOST:PORT; {rest}"


SECTION_MEANINGS: Final = {
    "": "The node.",
    "listen": "Where it listens.",
    "limits": "What it allows. Each limit is always on; each refusal is counted in `logboom stats`.",
    "topics": "Which topics there may be.",
    "topics.settings.segment": "For topics that are made without settings of their own: when a segment is closed.",
    "topics.settings.retention": "What may be dropped, per partition: the oldest, as long as so much stays.",
    "topics.settings.hook": "What runs before retention drops a segment.",
    "topics.settings.recompression": "How closed segments are stored anew.",
    "topics.settings.flush": "When what was written is synced, and with that shown to readers.",
    "topics.settings.acks": "What a writer is promised.",
    "topics.settings.validators": "Web hooks that are asked before records are appended.",
    "hooks": "Commands that topics may have run before retention drops a segment. A topic names one in hook.delete.",
    "validators": "Whom topics may have asked before records are appended.",
    "pipeline": "What the pipeline has made, as far as the node itself reads it: archives, checkpoints, reports.",
    **{kind.name: kind.meaning for kind in FRONT_ENDS if kind.settings is not None},
    "upkeep": "Retention, recompression and scrubbing, in the background.",
}

MEANINGS: Final = {
    "data": "The data directory. In a file, relative to that file. It is made where there is none.",
    "cluster_id": "Refuse a data directory of another cluster; a new directory becomes of this one.",
    "threads": "For writes that take long, filters, and reads of what is not in memory.",
    "reserve_bytes": "Free space on the volume below which nothing is written; reads go on.",
    "shutdown_deadline_ms": "A node that was told to stop ends after so long at the latest.",
    "log_level": "What is told on standard error.",
    "replicate_from": "The logd address of a node to copy, HOST:PORT: this node is a read-only replica of it.",
    **{f"listen.{kind.name}": _meaning_of_addresses(kind) for kind in FRONT_ENDS},
    "listen.unix": "Path of a Unix socket for the binary protocol; in a file, relative to that file.",
    **{
        f"{kind.name}.{key}": meaning
        for kind in FRONT_ENDS
        if kind.settings is not None
        for key, meaning in kind.settings.meanings.items()
    },
    "limits.connections": "Open at once; more are told so and closed. Lowered to what the open files limit leaves.",
    "limits.connections_per_second": "More wait in the system's queue, and are accepted later.",
    "limits.topics": "How many topics there may be. Each costs memory, and a start looks at all of them.",
    "limits.topics_per_connection": "Different topics that one connection may name.",
    "limits.subscriptions_per_connection": "Open at once.",
    "limits.in_flight_bytes": (
        "Of one connection: appends without an answer and answers not sent. Beyond this it is not read from."
    ),
    "limits.receive_bytes": "Of all connections: frames that have not come whole yet.",
    "limits.batch_bytes": "The largest batch, as sent and inflated.",
    "limits.read_bytes": "The most that one read gives, unless a single batch is larger.",
    "limits.unsynced_bytes_per_log": "Written or waiting to be, and not synced, of one log. Beyond this appends wait.",
    "limits.unsynced_bytes": "The same of all logs together. This much memory may be waiting for the disk.",
    "limits.append_wait_ms": "How long appends wait for that before they fail as not appended.",
    "limits.read_wait_ms": "The longest that a read may ask to wait for news.",
    "limits.idle_ms": "A connection that is silent for so long is closed.",
    "limits.hello_ms": "A connection that has not said hello by then is closed.",
    "limits.cursors": "How many cursors there may be, counted per partition. They are kept in memory.",
    "limits.stages": "How many stages there may be. 0 allows none, and with that no publish.",
    "limits.staged_bytes": "Of all stages together. Publishing one takes its size once more until it is done.",
    "limits.stage_idle_ms": "A stage is thrown away when nothing was staged and it was not published for so long.",
    "limits.publish_keys": "Names that last and that something was published under. They are kept in memory.",
    "topics.allowed": "Patterns as the shell has them: a new topic's name must match one.",
    "topics.denied": "And none of these.",
    "topics.auto_create": "Whether a write to a topic that is not there makes it.",
    "topics.partitions": "Of a topic that a write makes.",
    "topics.settings.segment.bytes": "A segment is closed before it would grow beyond this.",
    "topics.settings.segment.age_ms": "And when its first batch is older than this.",
    "topics.settings.retention.bytes": "Keep at least the newest so many bytes; none keeps all.",
    "topics.settings.retention.age_ms": "Keep at least what is younger; none keeps all.",
    "topics.settings.retention.records": "Keep at least the newest so many records; none keeps all.",
    "topics.settings.retention.hard_bytes": "Beyond this segments go even if their hooks have not succeeded.",
    "topics.settings.retention.after": "Whether segments wait until they are archived.",
    "topics.settings.hook.delete": "A name in [hooks]. Its command must succeed before the segment goes.",
    "topics.settings.hook.timeout_ms": "The command is killed after so long, and tried again.",
    "topics.settings.hook.backoff_ms": "How long to wait after its first failure; doubled with each further one.",
    "topics.settings.hook.backoff_max_ms": "And never longer than this.",
    "topics.settings.recompression.codec": "What closed segments are compressed with.",
    "topics.settings.recompression.level": "Of zstd.",
    "topics.settings.recompression.min_gain": "A segment is left alone unless it shrinks by at least this share.",
    "topics.settings.flush.policy": (
        "each: as soon as the last sync has ended. interval: within interval_ms, or at once when a writer asks for "
        "durable. os: what is written counts as committed, and a power loss may take it back."
    ),
    "topics.settings.flush.interval_ms": "For the policy interval.",
    "topics.settings.acks.default": "What a writer that does not say gets: none, leader (written) or durable (synced).",
    "topics.settings.acks.least": "A weaker wish is raised to this.",
    "topics.settings.validators.urls": (
        "Each gets the records as JSON, all at the same time, and must answer 2xx. Only what validators.allow lists."
    ),
    "topics.settings.validators.timeout_ms": "One that has not answered by then has failed.",
    "topics.settings.validators.concurrency": "Appends of a topic that are with its validators at once; others wait.",
    "topics.settings.validators.on_failure": "What becomes of records whose validator does not answer.",
    "hooks": (
        "The command, for the shell, under the name that topics choose it by: 1 to 64 of a-z, 0-9, _ and -. It must "
        "end with exit code 0 before the segment goes."
    ),
    "validators.allow": (
        "URLs that topics may name in validators.urls: http://host:port/path allows the same scheme, host and port, "
        "and that path with all below it. An empty list allows none."
    ),
    "validators.networks": (
        "Networks that validators must be in, such as 10.0.0.0/8, whatever their names are resolved to. An empty list "
        "is everywhere but link-local, multicast, reserved and unspecified addresses, and where clouds tell secrets."
    ),
    "pipeline.places": (
        "Directories (absolute) and stores (s3://bucket/logs) that results are read from, with all below them; a URI's "
        "query must be the same. An empty list is any directory of this machine, and no store."
    ),
    "upkeep.recompress_bytes_per_second": "Read in order to recompress, at most; none is no limit.",
    "upkeep.scrub_bytes_per_second": "Read in order to find damage, at most; none is no limit.",
    "upkeep.scrub_every_ms": "Every closed segment is read again after so long.",
    "upkeep.hooks_max": "How many hooks run at once, over all topics.",
    "upkeep.retention_every_ms": "How often it is decided what may go.",
}
