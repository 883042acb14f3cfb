"""A tool server over standard streams that does odd things on demand. Run as a program; standard library only."""

import json
import os
import sys
import threading
from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
READ_ONLY = {"readOnlyHint": True}
log = open(sys.argv[1], "a", buffering=1)  # noqa: PTH123, SIM115
lock = threading.Lock()
names = ["echo", "write", "image", "structured", "mixed", "refuse", "break", "hang", "die", "grow", "env", "long"]
names += ["odd name/ü", "odd_name/ü"]


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}


def tool(name: str) -> dict[str, Any]:
    hints = {} if name in ("write", "hang") else {"annotations": READ_ONLY}
    schema = {"$schema": "x", "type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **hints}


def call(request_id: Any, params: dict[str, Any]) -> None:
    name, given = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    results: dict[str, Any] = {
        "image": {"content": [text("look"), {"type": "image", "data": PNG, "mimeType": "image/png"}]},
        "structured": {"content": [text("x")], "structuredContent": {"n": 3, "none": None}},
        "mixed": {"content": [text("a"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}]},
        "refuse": {"content": [text("no")], "isError": True},
        "env": {"content": [text(dict(os.environ))]},
        "long": {"content": [text("x" * 200_000)]},
    }
    results["mixed"]["content"].append({"type": "resource", "resource": {"uri": "file:///x", "text": "r"}})
    if name == "hang":
        send(
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": "on it"}}
        )
        return
    if name == "die":
        os._exit(3)
    if name == "break":
        send({"id": request_id, "error": {"code": -32000, "message": "it broke"}})
        return
    if name == "grow":
        names.append("grown")
        send({"method": "notifications/tools/list_changed"})
    send({"id": request_id, "result": results.get(name, {"content": [text(f"{name} {json.dumps(given)}")]})})


def answer(message: dict[str, Any]) -> None:
    request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if request_id is None:
        return
    if method == "initialize":
        offer = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "peer", "version": "1"}}
        version = params["protocolVersion"]
        send({"id": request_id, "result": {"protocolVersion": version, "instructions": "Use me well.", **offer}})
    elif method == "tools/list":
        half = len(names) // 2
        page = {"tools": [tool(name) for name in names[:half]], "nextCursor": "more"}
        if params.get("cursor"):
            page = {"tools": [tool(name) for name in names[half:]]}
        send({"id": request_id, "result": page})
    elif method == "tools/call":
        call(request_id, params)
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "unknown"}})


def main() -> None:
    log.write(f"{os.getpid()}\n")
    sys.stdout.write('Starting up...\n{"looks": "like JSON"}\n')
    for line in sys.stdin:
        log.write(line)
        answer(json.loads(line))


main()
