"""The README's client example runs against the daemon that the README says to start."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
WAIT_S = 30
DEFAULT_ADDRESS = "ws://127.0.0.1:4500"


def example() -> str:
    found = re.search(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[str]:
    """The address of `unspool serve` on a free port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unspool_server.cli.main", "serve", "--port", "0"),
        env={**os.environ, "UNSPOOL_HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_S):
            async for line in process.stderr:
                found = re.search(rb"ws://127\.0\.0\.1:\d+", line)
                if found:
                    yield found[0].decode()
                    break
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_client_example_of_the_readme_runs_and_shows_a_whole_turn(tmp_path: Path) -> None:
    code = example()
    assert DEFAULT_ADDRESS in code
    async with served(tmp_path) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", code.replace(DEFAULT_ADDRESS, address)),
            env={**os.environ, "UNSPOOL_HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    assert (process.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0] == "Remember the number 7."
    methods = [line.split()[0] for line in lines[1:]]
    assert methods[0] == "thread/started"
    assert methods[-1] == "turn/completed"
    assert methods.count("turn/started") == 1
