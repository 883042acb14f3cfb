"""The official Python SDK (`openai_codex`), in all its thread and turn calls, sync and async. Run by its own Python."""

import asyncio
import base64
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from openai_codex import AsyncCodex, Codex, CodexConfig
from openai_codex.api import (
    ApprovalMode,
    ExternalMessage,
    ImageInput,
    LocalImageInput,
    MentionInput,
    Sandbox,
    SkillInput,
    TextInput,
)
from openai_codex.client import CodexClient
from openai_codex.errors import InvalidRequestError
from openai_codex.retry import retry_on_overload

BIN, WORK = sys.argv[1:3]
CONFIG = CodexConfig(codex_bin=BIN, cwd=WORK)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def said(name: str, error: str = "") -> None:
    print(json.dumps({"check": name, **({"error": error} if error else {})}), flush=True)


def check(name: str, body: Callable[[], None]) -> None:
    try:
        body()
    except BaseException:
        said(name, traceback.format_exc(limit=4))
    else:
        said(name)


async def async_check(name: str, body: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.wait_for(body(), 60)
    except BaseException:
        said(name, traceback.format_exc(limit=4))
    else:
        said(name)


def texts(read) -> list[list[str]]:
    return [
        [
            "".join(getattr(part.root, "text", "") for part in item.root.content)
            if item.root.type == "userMessage"
            else getattr(item.root, "text", item.root.type)
            for item in turn.items
        ]
        for turn in read.thread.turns
    ]


def settled(thread) -> None:
    """Wait until nothing runs: a compaction takes no input, here as in the reference."""
    while thread.read().thread.status.root.type != "idle":
        time.sleep(0.02)


def sync_part() -> None:
    with Codex(CONFIG) as codex:
        thread = codex.thread_start(
            cwd=WORK,
            developer_instructions="be brief",
            sandbox=Sandbox.full_access,
            approval_mode=ApprovalMode.deny_all,
        )

        def metadata() -> None:
            assert codex.metadata.userAgent.startswith("codex_python_sdk/0.171.0 "), codex.metadata

        def run() -> None:
            result = thread.run("hello")
            assert result.final_response == "hello", result
            assert result.status.value == "completed" and result.usage.total.total_tokens > 0
            assert [item.root.type for item in result.items] == ["userMessage", "agentMessage"]

        def stream() -> None:
            methods = [event.method for event in thread.turn("stream me").stream()]
            assert methods[0] == "turn/started" and methods[-1] == "turn/completed", methods
            assert "item/agentMessage/delta" in methods

        def inputs() -> None:
            image = Path(WORK) / "pixel.png"
            image.write_bytes(PIXEL)
            url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
            given = [
                TextInput("look"),
                ImageInput(url),
                LocalImageInput(str(image)),
                MentionInput("drive", "app://drive"),
                SkillInput("foo", "/skills/foo/SKILL.md"),
            ]
            result = thread.run(given)
            assert result.status.value == "completed"
            assert [part.root.type for part in result.items[0].root.content] == [
                "text",
                "image",
                "localImage",
                "mention",
                "skill",
            ]

        def external() -> None:
            result = thread.run(ExternalMessage("mailer", "you have mail", namespace="box"))
            kinds = [item.root.type for item in result.items]
            assert kinds == ["functionCallOutput", "agentMessage"], kinds

        def overrides() -> None:
            other = codex.thread_start(cwd=WORK)
            result = other.run(
                "in another folder",
                cwd="/",
                model="other-model",
                output_schema={"type": "object"},
                sandbox=Sandbox.read_only,
                source="cron",
            )
            assert result.status.value == "completed"

        def failure() -> None:
            other = codex.thread_start(cwd=WORK, model_provider="broken")
            try:
                other.run("this fails")
            except RuntimeError as error:
                assert "scripted" in str(error), error
            else:
                raise AssertionError("a failed turn raised nothing")
            assert codex.thread_resume(other.id).read(include_turns=True).thread.turns[-1].status.value == "failed"

        def interrupt() -> None:
            slow = codex.thread_start(cwd=WORK, model_provider="slow")
            handle = slow.turn("never ends")
            events = handle.stream()
            while next(events).method != "item/agentMessage/delta":
                pass
            handle.interrupt()
            last = list(events)[-1]
            assert last.method == "turn/completed" and last.payload.turn.status.value == "interrupted"

        def steer() -> None:
            slow = codex.thread_start(cwd=WORK, model_provider="slow")
            handle = slow.turn("never ends")
            events = handle.stream()
            while next(events).method != "item/agentMessage/delta":
                pass
            assert handle.steer("stop, and say this").turn_id == handle.id
            while (event := next(events)).method != "item/completed" or event.payload.item.root.type != "userMessage":
                pass
            handle.interrupt()
            assert list(events)[-1].method == "turn/completed"

        def name_and_list() -> None:
            thread.set_name("a name")
            listed = codex.thread_list(cwd=WORK, limit=50)
            assert {found.id: found.name for found in listed.data}[thread.id] == "a name"
            assert codex.thread_list(search_term="nothing like this").data == []

        def pages() -> None:
            first = codex.thread_list(limit=1)
            second = codex.thread_list(limit=1, cursor=first.next_cursor)
            assert len(first.data) == len(second.data) == 1 and first.data[0].id != second.data[0].id

        def read() -> None:
            assert texts(thread.read(include_turns=True))[0] == ["hello", "hello"]
            assert thread.read().thread.turns == []

        def fork() -> None:
            child = codex.thread_fork(thread.id)
            assert child.run("in the child").final_response == "in the child"
            assert child.read().thread.forked_from_id == thread.id
            assert texts(child.read(include_turns=True))[0] == ["hello", "hello"]

        def compact() -> None:
            thread.compact()
            settled(thread)
            assert thread.run("after").final_response == "after"
            kinds = [item.root.type for turn in thread.read(include_turns=True).thread.turns for item in turn.items]
            assert "contextCompaction" in kinds

        def resume() -> None:
            again = codex.thread_resume(thread.id, include_turns=False)
            assert again.id == thread.id and again.run("again").final_response == "again"

        def archive() -> None:
            codex.thread_archive(thread.id)
            assert thread.id in {found.id for found in codex.thread_list(archived=True).data}
            assert codex.thread_unarchive(thread.id).id == thread.id
            assert codex.thread_resume(thread.id).run("back").final_response == "back"

        def models() -> None:
            assert [model for model in codex.models().data if model.is_default]

        def account() -> None:
            assert codex.account().requires_openai_auth is False

        def unknown() -> None:
            try:
                codex.thread_resume("01900000-0000-7000-8000-000000000000")
            except InvalidRequestError as error:
                assert error.code == -32600 and "no rollout found" in error.message, error
            else:
                raise AssertionError("an unknown thread was resumed")

        for name, body in {
            "sync: initialize metadata": metadata,
            "sync: run": run,
            "sync: stream a turn": stream,
            "sync: every kind of input": inputs,
            "sync: external message": external,
            "sync: overrides of a turn": overrides,
            "sync: failed turn": failure,
            "sync: interrupt": interrupt,
            "sync: steer": steer,
            "sync: name and list": name_and_list,
            "sync: list in pages": pages,
            "sync: read": read,
            "sync: fork": fork,
            "sync: compact": compact,
            "sync: resume": resume,
            "sync: archive and unarchive": archive,
            "sync: models": models,
            "sync: account": account,
            "sync: unknown thread": unknown,
        }.items():
            check(name, body)

    def restart() -> None:
        with Codex(CONFIG) as codex:
            again = codex.thread_resume(thread.id)
            assert texts(again.read(include_turns=True))[0] == ["hello", "hello"]
            assert again.run("after a restart").final_response == "after a restart"

    check("sync: resume after a restart", restart)
    check("sync: retry on overload", overload)


def overload() -> None:
    """The low-level client sees an overloaded server as one to retry."""
    with CodexClient(CONFIG) as client:
        client.initialize()
        for number in range(2000):
            client._write_message({"id": f"flood-{number}", "method": "thread/list", "params": {}})
        retry_on_overload(client.model_list, max_attempts=30, initial_delay_s=0.05)


async def async_part() -> None:
    async with AsyncCodex(CONFIG) as codex:
        thread = await codex.thread_start(cwd=WORK)

        async def run() -> None:
            assert (await thread.run("hello")).final_response == "hello"

        async def stream() -> None:
            handle = await thread.turn("stream me")
            methods = [event.method async for event in handle.stream()]
            assert methods[-1] == "turn/completed" and "item/agentMessage/delta" in methods

        async def side_by_side() -> None:
            threads = [await codex.thread_start(cwd=WORK) for _ in range(5)]
            results = await asyncio.gather(*(one.run(f"number {i}") for i, one in enumerate(threads)))
            assert [result.final_response for result in results] == [f"number {i}" for i in range(5)]

        async def interrupt() -> None:
            slow = await codex.thread_start(cwd=WORK, model_provider="slow")
            handle = await slow.turn("never ends")
            last = None
            async for event in handle.stream():
                if event.method == "item/agentMessage/delta":
                    await handle.interrupt()
                last = event
            assert last.payload.turn.status.value == "interrupted"

        async def steer() -> None:
            slow = await codex.thread_start(cwd=WORK, model_provider="slow")
            handle = await slow.turn("never ends")
            steered = False
            async for event in handle.stream():
                if event.method == "item/agentMessage/delta" and not steered:
                    steered = True
                    assert (await handle.steer("more")).turn_id == handle.id
                elif event.method == "item/agentMessage/delta":
                    await handle.interrupt()

        async def keep() -> None:
            await thread.set_name("async name")
            found = await codex.thread_list(limit=50)
            assert {one.id: one.name for one in found.data}[thread.id] == "async name"
            assert (await thread.read(include_turns=True)).thread.turns

        async def fork() -> None:
            child = await codex.thread_fork(thread.id)
            assert (await child.run("in the child")).final_response == "in the child"

        async def compact() -> None:
            await thread.compact()
            while (await thread.read()).thread.status.root.type != "idle":
                await asyncio.sleep(0.02)
            assert (await thread.run("after")).final_response == "after"

        async def resume() -> None:
            again = await codex.thread_resume(thread.id)
            assert (await again.run("again")).final_response == "again"

        async def archive() -> None:
            await codex.thread_archive(thread.id)
            await codex.thread_unarchive(thread.id)
            back = await codex.thread_resume(thread.id)
            assert (await back.run("back")).final_response == "back"

        async def models() -> None:
            assert (await codex.models()).data and (await codex.account()).requires_openai_auth is False

        for name, body in {
            "async: run": run,
            "async: stream a turn": stream,
            "async: threads side by side": side_by_side,
            "async: interrupt": interrupt,
            "async: steer": steer,
            "async: name, list, read": keep,
            "async: fork": fork,
            "async: compact": compact,
            "async: resume": resume,
            "async: archive and unarchive": archive,
            "async: models and account": models,
        }.items():
            await async_check(name, body)


sync_part()
asyncio.run(async_part())
