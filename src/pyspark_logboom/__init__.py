"""What Spark looks for: it imports every top-level module whose name begins so, and registers its `DefaultSource`."""

from logboom.spark.source import LogboomSource as DefaultSource

__all__ = ["DefaultSource"]
