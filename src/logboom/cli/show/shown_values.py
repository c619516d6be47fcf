"""Values as people read them: what a topic's setting says is msgpack comes out as JSON. All else is text, or bytes.

Only where it is asked for, or on a terminal: what is piped is what is stored. A value that is not what it should be is
shown as it is, and counted, so that nothing stops and somebody hears of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from logboom.cli.show.terminal import printable_json
from logboom.values.serializer import coder_of

if TYPE_CHECKING:
    from logboom.cli.target import LogTarget
    from logboom.client.link.profile import Servers

_json = msgspec.json.Encoder()


class ShownValues:
    def __init__(self, always: str | None, by_topic: Mapping[str, str] = {}) -> None:
        """`always` is of all topics; else each has its own."""
        self._always = always
        self._by_topic = by_topic
        self._msgpack = coder_of("msgpack")
        self.is_idle = "msgpack" not in (always, *by_topic.values())
        """Whether there is nothing to do."""
        self.odd = 0
        """Values that are not what they should be."""

    def take(self, values: Sequence[bytes | None], topic: str) -> list[bytes | None]:
        if (self._always or self._by_topic.get(topic)) != "msgpack":
            return list(values)
        return [None if value is None else self._shown(value) for value in values]

    def _shown(self, value: bytes) -> bytes:
        assert self._msgpack is not None
        values, error = self._msgpack.decode_list([value])
        try:
            if error is None:
                return printable_json(_json.encode(values[0]).decode()).encode()
        except (TypeError, ValueError, RecursionError):
            pass
        self.odd += 1
        return value


def settings_of(target: LogTarget, servers: Servers) -> dict[str, str]:
    """What the settings of the topics that are meant say of values; of those that a caller may know of."""
    from logboom import Client
    from logboom.broker.read.log_names import LogNames

    names = LogNames.parse(target.topic)
    with Client(servers) as client:
        if any(name.is_pattern for name in names):
            found = client.list_topics()
        else:
            found = [client.describe_topic(topic) for topic in dict.fromkeys(name.topic for name in names)]
    return {topic.name: topic.settings.value for topic in found if topic.settings.value is not msgspec.UNSET}
