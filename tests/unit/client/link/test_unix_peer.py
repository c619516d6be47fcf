"""A token is shown over a Unix socket to those who may have it, and to nobody else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from logboom.broker.caller import ITSELF
from logboom.client.link import unix_peer
from logboom.client.link.address import parse_servers
from logboom.client.link.blocking_link import open_socket
from logboom.client.link.profile import Profile
from logboom.client.remote import connect
from logboom.errors import ConfigError
from support.callers.closed_node import closed_node

STRANGER = os.geteuid() + 4711


@pytest.mark.parametrize("listener", ["himself", "a stranger"])
def test_a_token_goes_to_a_socket_of_ones_own_and_to_none_of_a_stranger(
    listener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            await node.broker.add_user("ann", caller=ITSELF)
            token = await node.broker.create_token("ann", caller=ITSELF)
            profile = Profile(f"unix:{tmp_path}/data/logboom.sock", token=token.token)
            if listener == "himself":
                async with connect(profile) as broker:
                    assert (await broker.whoami()).principal == "ann"
                open_socket(parse_servers(profile)[0], 60).close()
                return
            monkeypatch.setattr(unix_peer, "_user_behind", lambda sock, path: STRANGER)
            with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}"):
                await connect(profile).__aenter__()
            with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}"):
                open_socket(parse_servers(profile)[0], 60)
            async with connect(profile.servers) as broker:  # without a token there is nothing to be shown
                assert (await broker.whoami()).principal == "_operator"

    asyncio.run(story())


def test_a_service_with_a_directory_of_its_own_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (address,) = parse_servers(Profile(f"unix:{tmp_path}/node.sock", token="lbt_x"))
    monkeypatch.setattr(unix_peer, "_user_behind", lambda sock, path: tmp_path.stat().st_uid)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    unix_peer.check_listener(address, None)  # type: ignore[arg-type]
