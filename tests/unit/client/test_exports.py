"""The public names, and what it costs to import them."""

from __future__ import annotations

import subprocess
import sys

import logboom
import logboom.client


def test_the_package_exports_these_names_and_no_others() -> None:
    assert logboom.__all__ == [
        "AcksSettings",
        "AsyncConsumer",
        "AsyncQueueConsumer",
        "AsyncReader",
        "AsyncWriter",
        "Client",
        "Consumer",
        "FileReader",
        "FlushSettings",
        "HookSettings",
        "LogboomError",
        "Profile",
        "QueueConsumer",
        "Reader",
        "RecompressionSettings",
        "Record",
        "RetentionSettings",
        "SegmentSettings",
        "Serializer",
        "Settings",
        "TopicFileReader",
        "Transaction",
        "ValidatorSettings",
        "Writer",
        "Written",
        "__version__",
        "connect",
    ]
    assert logboom.client.__all__ == [
        "AsyncConsumer",
        "AsyncQueueConsumer",
        "AsyncReader",
        "AsyncWriter",
        "Client",
        "Consumer",
        "FileReader",
        "Profile",
        "QueueConsumer",
        "Reader",
        "RemoteBroker",
        "TopicFileReader",
        "Transaction",
        "Writer",
        "Written",
        "connect",
    ]


def test_every_exported_name_is_there() -> None:
    for module in (logboom, logboom.client):
        for name in module.__all__:
            assert getattr(module, name) is not None
            assert name in dir(module)
        assert not hasattr(module, "Nothing")


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys; import logboom, logboom.client; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "numpy", "pyarrow", "msgspec", "socket"} & set(loaded)
    assert [name for name in loaded if name.startswith("logboom")] == ["logboom", "logboom.client", "logboom.lazy"]
