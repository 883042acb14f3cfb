"""A model service that answers as the recordings show, and no faster than the player has come.

Speaks as much of the Responses API as the server uses, over plain HTTP on the loop of the test.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.transcripts.recording import COMPACTION, Sampling

COMPACT_PROMPT = "Sum up."
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 110,
}


@dataclass
class ScriptedModel:
    """Started by `start`. `reached` is the entry of the recording that the player has come to."""

    samplings: list[Sampling] = field(default_factory=list)
    unplanned: list[str] = field(default_factory=list)
    port: int = 0
    reached: int = -1
    _count: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _talks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end every stream."""
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def begin(self, samplings: list[Sampling]) -> None:
        """Answer as the next recording says."""
        self.samplings, self.reached = samplings, -1

    def reach(self, index: int) -> None:
        """Let everything out that the recording shows up to this entry."""
        self.reached = index
        self._moved.set()
        self._moved = asyncio.Event()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer), name="scripted model")
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
            await self._reply(json.loads(await reader.readexactly(length)), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the server cut the request off, as it does for an interrupt
        finally:
            writer.close()

    async def _reply(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        sampling = self._take(_asked(request))
        if sampling.ending == "fail":
            await self._until(sampling.gates[0])
            code = int(sampling.asked.removeprefix("fail:").split(" ")[0])
            body = b'{"error": {"message": "mock failure", "type": "mock", "code": "mock"}}'
            writer.write(b"HTTP/1.1 %d Mock\r\ncontent-length: %d\r\nconnection: close\r\n" % (code, len(body)))
            writer.write(b"content-type: application/json\r\n\r\n" + body)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        if sampling.call is not None:
            await self._call(sampling.call, writer)
        else:
            await self._stream(sampling, writer)

    async def _call(self, call: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        self._count += 1
        arguments = json.dumps(call["arguments"])
        item = {"type": "function_call", "id": f"fc_{self._count}", "call_id": f"call_{self._count:08}"}
        item |= {"name": call["name"], "arguments": arguments}
        _say(writer, "response.created", response={"id": f"resp_{self._count}"})
        _say(writer, "response.output_item.added", output_index=0, item={**item, "arguments": ""})
        _say(writer, "response.output_item.done", output_index=0, item=item)
        _say(writer, "response.completed", response={"id": f"resp_{self._count}", "usage": USAGE})
        await writer.drain()

    async def _stream(self, sampling: Sampling, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        place = {"output_index": 0, "item_id": f"msg_{self._count}", "content_index": 0}
        item: dict[str, Any] = {"type": "message", "id": f"msg_{self._count}", "role": "assistant", "content": []}
        _say(writer, "response.created", response={"id": f"resp_{self._count}"})
        if sampling.ending == "hang" and not sampling.deltas:
            await asyncio.Event().wait()
        await self._until(sampling.gates[0])
        _say(writer, "response.output_item.added", output_index=0, item=item)
        for delta, gate in zip(sampling.deltas, sampling.gates[1:], strict=False):
            await self._until(gate)
            _say(writer, "response.output_text.delta", delta=delta, **place)
            await writer.drain()
        if sampling.ending == "hang":
            await asyncio.Event().wait()
        await self._until(sampling.gates[-1])
        item["content"] = [{"type": "output_text", "text": sampling.text}]
        _say(writer, "response.output_item.done", output_index=0, item=item)
        _say(writer, "response.completed", response={"id": f"resp_{self._count}", "usage": USAGE})
        await writer.drain()

    async def _until(self, gate: int) -> None:
        while self.reached < gate:
            await self._moved.wait()

    def _take(self, asked: str) -> Sampling:
        for wanted in (asked, "") if asked != COMPACT_PROMPT else (COMPACTION,):
            for sampling in self.samplings:
                if sampling.asked == wanted:
                    self.samplings.remove(sampling)
                    return sampling
        self.unplanned.append(asked)
        return Sampling(asked, gates=[-1])


def _asked(request: Mapping[str, Any]) -> str:
    """The newest text of a user in a request."""
    for item in reversed(request["input"]):
        if item.get("role") == "user":
            return "".join(part.get("text", "") for part in item["content"])
    return ""


def _say(writer: asyncio.StreamWriter, kind: str, **members: Any) -> None:
    writer.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode())
