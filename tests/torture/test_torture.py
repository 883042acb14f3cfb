"""A storm over a real daemon: many clients that are cut off, turns all the time, kills; nothing is lost or told twice.

`make torture` runs the large one. A failure names the seed, the thread, the client and the first difference.
"""

import asyncio
from pathlib import Path

import pytest

from tests.torture.sizes import Sizes
from tests.torture.storm import Storm

SMALL = Sizes(seed=7, clients=6, threads=2, follows=2, kills=1, seconds=1.5, pace_s=0.005, words=20)


async def blow(home: Path, sizes: Sizes) -> None:
    """Run a storm and hold everything that is wrong against it."""
    storm = Storm(home, sizes)
    wrong = await storm.run()
    print(storm.figures())
    assert not wrong, f"{sizes}: {len(wrong)} differences, for example\n" + "\n".join(wrong[:8])
    assert sum(one.messages for one in storm.followers), "nothing happened"


async def test_a_small_storm_loses_nothing(tmp_path: Path) -> None:
    """Seconds long: the machinery of the large one works, and so does the daemon."""
    await blow(tmp_path / "home", SMALL)


@pytest.mark.torture
async def test_a_large_storm_loses_nothing(tmp_path: Path) -> None:
    """As large as the environment says."""
    asyncio.get_running_loop().set_debug(False)
    await blow(tmp_path / "home", Sizes.from_environment())
