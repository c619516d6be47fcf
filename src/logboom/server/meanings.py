"""What each key of the configuration, and each section, means to an operator."""

from __future__ import annotations

from typing import Final

from logboom.server.front_ends import FRONT_ENDS, FrontEndKind


def _meaning_of_addresses(kind: FrontEndKind) -> str:
    """The first says it for all."""
    if kind is FRONT_ENDS[0]:
        rest = (
            "port 0 is any free port. Those that other machines reach need TLS, and callers sign in; tls:// demands "
            "TLS anywhere, plain:// forbids it."
        )
    else:
        rest = "an empty list turns it off. For other machines the same holds as for listen.binary."
    return f"Addresses for {kind.what}, HOST:PORT; {rest}"


SECTION_MEANINGS: Final = {
    "": "The node.",
    "listen": "Addresses the node listens on.",
    "tls": "Certificates. With them, addresses that other machines reach speak TLS; tls:// demands it anywhere.",
    "oidc": "Bearer tokens (JWT) of an identity provider. Needs logboom[oidc].",
    "access": "What may be done without signing in. The node keeps users and rules: `logboom user`, `logboom acl`.",
    "audit": "The record of administrative acts and refusals, in the topic _audit.",
    "replicate": "Who a replica is at its source. Secrets are in files, read anew for each connection.",
    "limits": "Limits of the node. They always apply; `logboom stats` counts each refusal.",
    "topics": "Which topics may be created, and with which defaults.",
    "topics.settings": "Defaults for new topics.",
    "topics.settings.segment": "Default for new topics: when a segment is closed.",
    "topics.settings.retention": "Default retention, per partition: how much is kept.",
    "topics.settings.hook": "The command that runs before retention drops a segment.",
    "topics.settings.recompression": "How closed segments are recompressed.",
    "topics.settings.flush": "When written records are synced to disk; readers see them after that.",
    "topics.settings.acks": "When a write is acknowledged.",
    "topics.settings.validators": "Webhooks that must accept records before they are appended.",
    "hooks": "Commands that may run before retention drops a segment. A topic names one in hook.delete.",
    "validators": "Which webhooks topics may use as validators.",
    "pipeline": "Where the node may read the results of the pipeline: archives, checkpoints, reports.",
    **{kind.name: kind.meaning for kind in FRONT_ENDS if kind.settings is not None},
    "upkeep": "Retention, recompression and scrubbing, in the background.",
}

MEANINGS: Final = {
    "data": "The data directory, created if it does not exist. In a file, relative to that file.",
    "cluster_id": "Refuse a data directory of another cluster; a new directory gets this id.",
    "threads": "Threads for large writes, filters, and reads from disk.",
    "reserve_bytes": "Writes are refused while the volume has less free space than this; reads continue.",
    "shutdown_deadline_ms": "A node that is stopped exits after this time at the latest.",
    "log_level": "The least severe messages to print on standard error.",
    "replicate_from": (
        "The logd address of a node to copy, HOST:PORT or tls://HOST:PORT. This node is then its read-only replica."
    ),
    "replicate.profile": "The name of a profile (profiles.toml) that has all of the following; instead of them.",
    "replicate.user": "The user to sign in as.",
    "replicate.password_file": "A file with that user's password, and nothing else. Not all may read it.",
    "replicate.token_file": "A file with a token, instead of a user and a password.",
    "replicate.ca": "A file with the certificates to trust; without one, those of the system.",
    "replicate.certificate": "A file with this node's own certificate to show, and perhaps its key.",
    "replicate.key": "A file with the key of that certificate.",
    "replicate.server_name": "What the source's certificate must be for, if that is not the host in replicate_from.",
    **{f"listen.{kind.name}": _meaning_of_addresses(kind) for kind in FRONT_ENDS},
    "listen.unix": (
        "Path of a Unix socket for the binary protocol; in a file, relative to that file. Where callers must sign in, "
        "and none is named, it is logboom.sock in the data directory. Over it whoever runs the node may do everything."
    ),
    **{
        f"{kind.name}.{key}": meaning
        for kind in FRONT_ENDS
        if kind.settings is not None
        for key, meaning in kind.settings.meanings.items()
    },
    "limits.connections": "Open connections; more are refused. Lowered to fit the open files limit.",
    "limits.connections_per_second": "New connections per second; further ones wait in the system's queue.",
    "limits.topics": "How many topics there may be. Each takes memory, and start time.",
    "limits.topics_per_connection": "How many different topics one connection may use.",
    "limits.subscriptions_per_connection": "Open subscriptions of one connection.",
    "limits.logs_per_subscription": "Logs of one subscription that reads whole topics.",
    "limits.subscribed_logs": "Logs of all subscriptions that read whole topics, together.",
    "limits.in_flight_bytes": (
        "Unanswered appends and unsent answers of one connection. Above this the node stops reading from it."
    ),
    "limits.receive_bytes": "Incompletely received frames of all connections.",
    "limits.batch_bytes": "The largest batch, compressed and uncompressed.",
    "limits.read_bytes": "The most that one read returns, unless a single batch is larger.",
    "limits.unsynced_bytes_per_log": "Unsynced bytes of one log, written or waiting. Above this, appends wait.",
    "limits.unsynced_bytes": "Unsynced bytes of all logs together. They may take this much memory.",
    "limits.append_wait_ms": "How long appends wait for unsynced bytes to be synced before they fail.",
    "limits.read_wait_ms": "The longest that a read may wait for new records.",
    "limits.idle_ms": "A connection that is idle for this time is closed.",
    "limits.hello_ms": "A connection that does not send a hello within this time is closed.",
    "limits.cursors": "How many cursors there may be, counted per partition. They are kept in memory.",
    "limits.stages": "How many stages there may be. 0 allows no stages, and so no publish.",
    "limits.staged_bytes": "Size of all stages together. A publish takes up to the same space again until it is done.",
    "limits.stage_idle_ms": "A stage that is not used for this time is discarded.",
    "limits.groups": "How many groups of consumers there may be. They are kept in memory.",
    "limits.group_members": "How many members one group may have.",
    "limits.group_logs": "How many logs (partitions) one group reads; of more, the last by name are read by nobody.",
    "limits.group_idle_ms": "A group without members for this time is deleted, with its places.",
    "limits.queue_window": (
        "How many records of one log a work queue has at hand at one time: from the first that is not done to the last "
        "that somebody was given. Beyond that it waits."
    ),
    "limits.queue_in_flight": "How many records of one work queue its members may hold at one time.",
    "limits.queue_member_in_flight": "How many of these one member may hold.",
    "limits.queue_blocks": (
        "How much all work queues keep of records that are not done: entries, each of up to 1,024 records of one log. "
        "They are kept in memory. Beyond that nobody is given records."
    ),
    "limits.access_entries": "How many users, tokens, roles, rules and quotas there may be together.",
    "tls.certificate": "A file with the node's certificate and those between it and its CA, in PEM.",
    "tls.key": "A file with the key of the certificate; not needed where that file holds both.",
    "tls.client_ca": "A file with the certificates that those of clients are checked against.",
    "tls.client_certificates": "Whether clients must show a certificate, may, or are not asked.",
    "tls.principal_from": "Which name of a client's certificate says who he is; it must have exactly one of these.",
    "access.anonymous": (
        "What callers may do that have not signed in: all, or none but what rules give to anonymous; auto is all "
        "where only this machine reaches the node, else none."
    ),
    "oidc.issuer": "Who must have issued a token: its `iss`.",
    "oidc.audience": "For whom it must be: its `aud`.",
    "oidc.jwks": "The keys of the provider (JSON Web Key Set): a file, or a URL with https://.",
    "oidc.principal_claim": "Which claim of a token says who somebody is.",
    "oidc.groups_claim": "Which claim names the groups he is in.",
    "access.files_group": (
        "A group of this machine whose members may read the files, as FileReader and Spark do; else only the user that "
        "runs the node. Rules do not count there."
    ),
    "access.insecure": "Listen for other machines without TLS, and let everybody do everything.",
    "audit.enabled": (
        "Whether administrative acts and refusals are recorded in the topic _audit; none means where callers must sign "
        "in."
    ),
    "audit.bytes": "How much of the audit trail is kept.",
    "audit.days": "For how many days it is kept.",
    "limits.publish_keys": "How many lasting names of publish keys there may be. They are kept in memory.",
    "topics.allowed": "Shell patterns; the name of a new topic must match one of them.",
    "topics.denied": "Shell patterns that the name of a new topic must not match.",
    "topics.auto_create": "Whether a write to a topic that does not exist creates it.",
    "topics.partitions": "How many partitions a topic has that a write creates.",
    "topics.settings.segment.bytes": "A segment is closed before it becomes larger than this.",
    "topics.settings.segment.age_ms": "A segment is closed when its first batch is older than this.",
    "topics.settings.retention.bytes": "Keep at least this many of the newest bytes; none means forever.",
    "topics.settings.retention.age_ms": "Keep at least the records younger than this; none means forever.",
    "topics.settings.retention.records": "Keep at least this many of the newest records; none means forever.",
    "topics.settings.retention.hard_bytes": "Above this size, segments are dropped even if their hooks fail.",
    "topics.settings.retention.after": "Whether segments are kept until they are archived.",
    "topics.settings.hook.delete": "A name in [hooks]. Its command must succeed before a segment is dropped.",
    "topics.settings.hook.timeout_ms": "The command is killed after this time, and run again later.",
    "topics.settings.hook.backoff_ms": "Wait time after the first failure; doubled with each further failure.",
    "topics.settings.hook.backoff_max_ms": "The longest wait time between two attempts.",
    "topics.settings.recompression.codec": "The codec that closed segments are recompressed with.",
    "topics.settings.recompression.level": "The zstd compression level.",
    "topics.settings.recompression.min_gain": "A segment is replaced only if it shrinks by at least this share.",
    "topics.settings.flush.policy": (
        "each: sync as soon as the last sync has ended. interval: within interval_ms, or at once for acks=durable. "
        "os: the operating system decides; written records count as committed, and a power loss may lose them."
    ),
    "topics.settings.flush.interval_ms": "The interval of the policy interval.",
    "topics.settings.acks.default": "The acks of a write that names none: none, leader (written) or durable (synced).",
    "topics.settings.acks.least": "The weakest acks allowed; a weaker request is raised to this.",
    "topics.settings.validators.urls": (
        "URLs that get the records as JSON and must answer 2xx. validators.allow must list them."
    ),
    "topics.settings.validators.timeout_ms": "A validator that does not answer within this time has failed.",
    "topics.settings.validators.concurrency": "How many appends of a topic are validated at once; others wait.",
    "topics.settings.validators.on_failure": "Whether records are refused or accepted if a validator fails.",
    "topics.settings.value": "What values are, for the console and the command line; none shows what they look like.",
    "hooks": (
        "A name (1 to 64 of a-z, 0-9, _ and -) and a shell command. The command must exit with code 0 before the "
        "segment is dropped."
    ),
    "validators.allow": (
        "URLs that topics may name in validators.urls: http://host:port/path allows the same scheme, host and port, "
        "and that path with all below it. An empty list allows no validators."
    ),
    "validators.networks": (
        "Networks, such as 10.0.0.0/8, that the resolved addresses of validators must be in. An empty list allows all "
        "but link-local, multicast, reserved and unspecified addresses, and the metadata services of clouds."
    ),
    "pipeline.places": (
        "Directories (absolute) and stores (s3://bucket/logs) that results may be read from, with everything below. "
        "The query of a URI must be the same. An empty list allows any directory of this machine, and no store."
    ),
    "upkeep.recompress_bytes_per_second": "Reading speed of recompression; none means no limit.",
    "upkeep.scrub_bytes_per_second": "Reading speed of scrubs; none means no limit.",
    "upkeep.scrub_every_ms": "How often each closed segment is scrubbed.",
    "upkeep.hooks_max": "How many hooks may run at the same time, over all topics.",
    "upkeep.retention_every_ms": "How often retention runs.",
}
