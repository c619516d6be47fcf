"""What a runner of the pipeline is told: where the node is, where results go, which Spark, and which jobs."""

from __future__ import annotations

import msgspec

from logboom.spark.jobs.job_run import JobWork
from logboom.spark.jobs.lease import LEASE_S


class SparkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    master: str | None = None
    """Of a cluster, or `local[4]`; without one Spark's own settings count, and `local[*]` where there are none."""
    remote: str | None = None
    """A Spark Connect address, sc://host:port."""
    config: dict[str, str] = {}
    """Settings of Spark by their names."""


class JobConfig(msgspec.Struct, frozen=True):
    name: str
    work: JobWork
    every_ms: int | None = None
    """How long after a run that succeeded the next one begins; None: only when it is asked for."""


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    """Where results go: an absolute path or a URI."""
    server: str | None = None
    """Where the node is; None: $LOGBOOM_SERVERS, else localhost."""
    lease_ms: int = int(1000 * LEASE_S)
    """A runner that was not heard of for so long has lost its job."""
    spark: SparkConfig = SparkConfig()
    jobs: dict[str, JobConfig] = {}
