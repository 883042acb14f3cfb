"""Homes with daemons of this process, the mock model service, and a real tool server for them."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.interaction.house import House
from tests.tools.peers import Peer


@pytest.fixture
def peer(house: House, tmp_path: Path) -> Iterator[Peer]:
    """A tool server over standard streams, configured as `box`; nothing of it may be left at the end."""
    served = Peer(tmp_path / "peer.log")
    script = Path(__file__).with_name("mcp_peer.py")
    house.tables["mcp_servers.box"] = {"command": sys.executable, "args": ["-I", str(script), str(served.log)]}
    house.settings |= {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    yield served
    with suppress(FileNotFoundError):
        assert not served.running(), "a tool server outlived its daemon"
