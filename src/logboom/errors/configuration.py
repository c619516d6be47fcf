"""What an installation lacks or has set wrongly. The message says what to change or to install."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class ConfigError(LogboomError, ValueError):
    """A setting with a wrong name or value."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class PackageMissing(LogboomError):
    """A package that only some calls need is not installed."""

    def __init__(self, package: str, what: str) -> None:
        super().__init__(f"{what} needs {package}: pip install {package}")
        self.package = package


class SparkMissing(LogboomError):
    """Spark, or the Java that it runs on, is not here or too old."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}: {advice}")
        self.what = what
        self.advice = advice
