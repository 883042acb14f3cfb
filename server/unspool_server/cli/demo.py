"""`unspool demo`: the main job from start to end on a home of its own, checking every claim that it prints."""

import asyncio
import tempfile
from pathlib import Path

import click

LONGEST_S = 120.0
"""Far more than it takes; a demo that hangs has failed."""


@click.command()
@click.option("--plain", is_flag=True, help="Without colours, for logs of CI.")
def demo(*, plain: bool) -> None:
    """Show the main job from start to end; needs no key and no network.

    Uses a temporary home and a daemon of its own. Every line with a tick was checked when it was printed; status 1 when
    something did not hold.
    """
    from unspool_client import ClientError

    from unspool_server.cli.demo_story import tell
    from unspool_server.cli.demo_telling import ClaimFailed, Telling

    telling = Telling(plain=plain)

    async def whole() -> None:
        async with asyncio.timeout(LONGEST_S):
            await tell(telling, Path(home))

    try:
        with tempfile.TemporaryDirectory(prefix="unspool-demo-") as home:
            asyncio.run(whole())
    except ClaimFailed as failed:
        telling.verdict(f"✗ This claim does not hold: {failed}", good=False)
    except (ClientError, RuntimeError, TimeoutError) as error:
        telling.verdict(f"✗ The demo broke off: {str(error) or 'it took too long'}", good=False)
    else:
        telling.verdict(f"All {telling.claims} claims were checked and hold.", good=True)
        return
    raise SystemExit(1)
