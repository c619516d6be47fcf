"""The jobs of the pipeline, and the results that they publish."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class PipelineError(LogboomError):
    """A job of the pipeline could not be done."""


class LeaseHeld(PipelineError):
    """Somebody else runs this job."""

    def __init__(self, job: str, runner: str) -> None:
        super().__init__(f"{job} is being run by {runner}: wait for it, or for its lease to end")
        self.job = job
        self.runner = runner


class LeaseLost(PipelineError):
    """A runner that was not heard of for too long may not publish what it has made."""

    def __init__(self, job: str, epoch: int, reason: str) -> None:
        super().__init__(f"{job} is no longer this runner's, which has epoch {epoch}: {reason}")
        self.job = job
        self.epoch = epoch
        self.reason = reason


class CheckpointNotFound(PipelineError):
    """There is no checkpoint of the topic, or not the one that was asked for."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"no checkpoint of {topic} to read: {reason}")
        self.topic = topic
        self.reason = reason


class ResultsUnreadable(PipelineError):
    """A result, or what is known of results, is not there or not what was published."""
