"""A broker as tests and people use it: in the process or through the network; whoever names no caller is everybody."""

from __future__ import annotations

from logboom.broker.local import LocalBroker
from logboom.client.remote import RemoteBroker

AnyBroker = LocalBroker | RemoteBroker
