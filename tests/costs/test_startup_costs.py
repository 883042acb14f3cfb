"""What the real command has imported when it answers the handshake (DESIGN §8): CI clients start a daemon per job."""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = {"openai", "starlette", "uvicorn", "rich", "jsonrpcserver", "jsonschema", "websockets", "aiosqlite"}
HEAVY |= {"prometheus_client", "structlog", "opentelemetry"}
ROOT = Path(__file__).parents[2]

REPORTING = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write("\\nloaded " + json.dumps(sorted(sys.modules)) + "\\n"))
from unspool_server.cli.main import main
main(prog_name="unspool")
"""


def run(home: Path, sent: bytes) -> tuple[list[dict[str, object]], set[str]]:
    """Messages that `unspool app-server` answers with, and which modules it had loaded when its input had ended."""
    path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients"))
    done = subprocess.run(
        [sys.executable, "-c", REPORTING, "app-server", "--home", str(home)],
        input=sent,
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    [report] = [line for line in done.stderr.decode().splitlines() if line.startswith("loaded ")]
    return [json.loads(line) for line in done.stdout.splitlines()], set(json.loads(report.removeprefix("loaded ")))


def test_the_daemon_answers_the_handshake_without_heavy_imports(tmp_path: Path) -> None:
    hello = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ci","version":"1"}}}\n'
    messages, loaded = run(tmp_path / "home", hello + b'{"method":"initialized"}\n')
    answer, *told = messages
    assert (answer["id"], "result" in answer) == (0, True)
    assert [message["method"] for message in told] == ["remoteControl/status/changed"]
    assert loaded & HEAVY == set()
    assert not (tmp_path / "home").exists(), "a handshake leaves nothing behind"
