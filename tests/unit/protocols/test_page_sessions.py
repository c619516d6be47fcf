"""Sessions of browsers: whoever has one is the one who signed in, for as long as that counts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from logboom.access.bearer import Bearer
from logboom.access.credential import Credential
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import NotAllowed
from logboom.protocols.http.identity.sessions import Sessions


def credential(password: str) -> Credential:
    return Credential.derive(password, os.urandom(16), iterations=4096)


def test_a_session_of_somebody_whom_a_provider_vouches_for_lasts_as_long_as_he_may_come_in(tmp_path: Path) -> None:
    class Provider:
        async def check(self, text: str) -> Bearer:
            return Bearer(text, frozenset({"ops"}), 0)

    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        broker.sign_in.bearers = Provider()
        sessions = Sessions(broker.sign_in, broker.world)
        shown = sessions.begin(await broker.sign_in.with_token(Caller(address="192.0.2.1:1"), "carol"))
        found = sessions.find(shown, Caller())
        assert found is not None
        assert (found.principal, found.groups) == ("carol", frozenset({"ops"}))
        await broker.add_user("carol", [credential("pencil-box")], caller=ITSELF)
        assert sessions.find(shown, Caller()) is not None
        await broker.change_user("carol", enabled=False, caller=ITSELF)
        assert sessions.find(shown, Caller()) is None
        await broker.close()

    asyncio.run(story())


def test_a_session_is_its_users_and_ends_with_his_password(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        await broker.add_user("ann", [credential("pencil-box")], roles=["admin"], caller=ITSELF)
        sessions = Sessions(broker.sign_in, broker.world)
        shown = sessions.begin(await broker.sign_in.with_password(Caller(address="192.0.2.1:1"), "ann", "pencil-box"))
        found = sessions.find(shown, Caller(protocol="http", address="192.0.2.2:2"))
        assert found is not None
        assert (found.principal, found.protocol, found.address) == ("ann", "http", "192.0.2.2:2")
        await broker.list_topics(caller=found)
        await broker.change_user("ann", [credential("another-one")], caller=found)
        assert sessions.find(shown, Caller()) is None
        await broker.remove_user("ann", caller=ITSELF)
        await broker.add_user("ann", [credential("another-one")], roles=["admin"], caller=ITSELF)
        with pytest.raises(NotAllowed):
            await broker.list_users(caller=found)
        await broker.close()

    asyncio.run(story())
