"""A process that serves the fake method table over its standard streams; run by the tests of stdio."""

import asyncio
import json
import os
import subprocess
import sys

HEAVY = ("openai", "starlette", "uvicorn", "rich", "jsonrpcserver", "jsonschema", "websockets", "aiosqlite")


def main() -> None:
    from unspool_server.transport.stdio import claim_standard_streams, serve_stdio

    input_fd, output_fd = claim_standard_streams()
    if "noise" in sys.argv:
        print("printed by Python", flush=True)
        os.write(1, b"written to descriptor 1\n")
        subprocess.run(["/bin/sh", "-c", "echo printed by a child; cat"], check=True)

    async def serve() -> None:
        from tests.transport.fakes import FakeHub, Table, make_shared

        await serve_stdio(make_shared(Table(), FakeHub()), input_fd, output_fd)

    asyncio.run(serve())
    loaded = [name for name in HEAVY if name in sys.modules]
    print(json.dumps({"loaded": loaded}), file=sys.stderr)


if __name__ == "__main__":
    main()
