"""A process that writes to a thread until it is killed; run by the lock and crash tests.

Arguments: home, thread id ("new" to create one). Prints one line per fact, for the test to wait for: the thread id,
then the ordinal of each record once its write was acknowledged.
"""

import asyncio
import sys
from pathlib import Path

from unspool_server.errors import WriterHeld
from unspool_server.store.local import LocalStore

from tests.conformance.threads import header, new_id, note


async def main(home: str, thread_id: str, count: int) -> None:
    store = LocalStore(Path(home))
    try:
        log = await store.create(header(new_id())) if thread_id == "new" else await store.open(thread_id)
    except WriterHeld as error:
        print(f"held by {error.holder}", flush=True)
        return
    print(log.info.thread_id, flush=True)
    for index in range(count):
        if index % 3 == 2:
            last = (await log.append([note(f"{index}"), note("x" * 5_000)]))[-1]
        else:
            [last] = await log.add([note(f"{index}")])
            await log.flush()
        print(last.ordinal, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
