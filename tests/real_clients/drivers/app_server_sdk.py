"""The community SDK `codex_app_server_sdk` over stdio and WebSocket, its rollback included. Run by its own Python."""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable

from codex_app_server_sdk import CodexClient, CodexError, CodexTurnInactiveError, ThreadConfig, TurnOverrides

BIN, WORK, URL = sys.argv[1:4]


def said(name: str, error: str = "") -> None:
    print(json.dumps({"check": name, **({"error": error} if error else {})}), flush=True)


async def check(name: str, body: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.wait_for(body(), 60)
    except BaseException:
        said(name, traceback.format_exc(limit=4))
    else:
        said(name)


def texts(read) -> list[list[str]]:
    thread = read["thread"] if "thread" in read else read
    return [
        [
            item.get("text") or "".join(part.get("text", "") for part in item.get("content", []))
            for item in turn["items"]
        ]
        for turn in thread["turns"]
    ]


async def settled(thread) -> None:
    """Wait until nothing runs: a compaction takes no input."""
    while (await thread.read(include_turns=False))["thread"]["status"]["type"] == "active":
        await asyncio.sleep(0.02)


async def whole(client: CodexClient, kind: str) -> None:
    thread = await client.start_thread(ThreadConfig(cwd=WORK))

    async def once() -> None:
        result = await thread.chat_once("hello")
        assert result.final_text == "hello" and result.thread_id == thread.thread_id, result

    async def steps() -> None:
        found = [step async for step in thread.chat("step by step")]
        assert [step.item_type for step in found] == ["userMessage", "agentMessage"], found
        assert found[-1].text == "step by step"

    async def overrides() -> None:
        result = await thread.chat_once("other", turn_overrides=TurnOverrides(model="other-model", effort="low"))
        assert result.final_text == "other"

    async def read() -> None:
        assert texts(await thread.read())[0] == ["hello", "hello"]

    async def names() -> None:
        await thread.set_name(f"a {kind} name")
        listed = await client.list_threads(limit=50)
        assert {one["id"]: one["name"] for one in listed["data"]}[thread.thread_id] == f"a {kind} name"

    async def fork() -> None:
        child = await thread.fork()
        assert (await child.chat_once("in the child")).final_text == "in the child"
        assert texts(await child.read())[0] == ["hello", "hello"]

    async def rollback() -> None:
        before = texts(await thread.read())
        await thread.chat_once("to be taken back")
        await thread.rollback(1)
        assert texts(await thread.read()) == before
        try:
            await thread.rollback(99)
        except CodexError as error:
            assert "99" in str(error) or "turns" in str(error), error
        else:
            raise AssertionError("more turns than there are were rolled back")

    async def compact() -> None:
        await thread.compact()
        await settled(thread)
        assert (await thread.chat_once("after")).final_text == "after"

    async def resume() -> None:
        again = await client.resume_thread(thread.thread_id)
        assert (await again.chat_once("again")).final_text == "again"

    async def archive() -> None:
        await thread.archive()
        assert thread.thread_id in {one["id"] for one in (await client.list_threads(archived=True))["data"]}
        await thread.unarchive()
        back = await client.resume_thread(thread.thread_id)
        assert (await back.chat_once("back")).final_text == "back"

    async def cancel() -> None:
        slow = await client.start_thread(ThreadConfig(cwd=WORK, model_provider="slow"))
        try:
            await slow.chat_once("never ends", inactivity_timeout=1.0)
        except CodexTurnInactiveError as error:
            result = await client.cancel(error.continuation)
            assert result.was_interrupted, result
        else:
            raise AssertionError("a turn that hangs has ended")

    async def failure() -> None:
        broken = await client.start_thread(ThreadConfig(cwd=WORK, model_provider="broken"))
        try:
            await broken.chat_once("this fails")
        except CodexError as error:
            assert "scripted" in str(error), error
        else:
            raise AssertionError("a failed turn raised nothing")

    async def start_calls() -> None:
        assert (await client.list_models())["data"]
        assert "config" in await client.read_config()
        assert await client.read_config_requirements() is not None

    for name, body in {
        "one message": once,
        "steps of a turn": steps,
        "overrides of a turn": overrides,
        "read": read,
        "name and list": names,
        "fork": fork,
        "rollback": rollback,
        "compact": compact,
        "resume": resume,
        "archive and unarchive": archive,
        "cancel a turn": cancel,
        "failed turn": failure,
        "models and configuration": start_calls,
    }.items():
        await check(f"{kind}: {name}", body)


async def main() -> None:
    async with CodexClient.connect_stdio(command=[BIN, "app-server"], cwd=WORK) as client:
        await client.initialize()
        await whole(client, "stdio")
    async with CodexClient.connect_websocket(url=URL) as client:
        await client.initialize()
        await whole(client, "websocket")


asyncio.run(main())
