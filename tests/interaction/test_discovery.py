"""`rpc.discover` describes what the daemon really does: its answers fit the shapes that it tells."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from unspool_server import __version__

from tests.interaction.house import House
from tests.interaction.wire import Client

NOT_TRIED = "01900000-0000-7000-8000-000000000000"


async def described(client: Client) -> Mapping[str, Any]:
    """The document that the daemon gives."""
    document: Mapping[str, Any] = await client.call("rpc.discover")
    return document


async def test_the_document_is_served_with_the_products_version(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        document = await described(client)
        assert (document["openrpc"], document["info"]["version"]) == ("1.3.2", __version__)
        assert "rpc.discover" in [method["name"] for method in document["methods"]]


async def test_answers_fit_the_shapes_that_are_told(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        document = await described(client)
        results = {method["name"]: method["result"]["schema"] for method in document["methods"]}

        async def fits(method: str, params: Any = None) -> Any:
            answer = await client.call(method, params)
            schema = {**results[method], "components": document["components"]}
            Draft202012Validator(schema).validate(answer)
            return answer

        thread = (await fits("thread/start", {"cwd": str(house.work)}))["thread"]["id"]
        started = await fits("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "hello"}]})
        await client.ended(started["turn"]["id"])
        named = {"threadId": thread}
        await fits("thread/read", {**named, "includeTurns": True})
        await fits("thread/turns/list", named)
        await fits("thread/items/list", named)
        await fits("thread/list", {})
        await fits("thread/resume", named)
        await fits("thread/fork", named)
        await fits("thread/compact", {**named, "summary": "short"})
        await fits("thread/rollback", {**named, "numTurns": 1})
        await fits("thread/rollback/undo", named)
        await fits("thread/audit", named)
        await fits("thread/branches", named)
        await fits("thread/lineage", named)
        await fits("thread/context", named)
        await fits("thread/verify", named)
        await fits("thread/loaded/list", {})
        await fits("model/list", {})
        await fits("config/read", {})
        await fits("configRequirements/read")
        await fits("account/read", {})
        await fits("thread/name/set", {**named, "name": "a name"})
        await fits("thread/unsubscribe", named)


async def test_a_refusal_carries_a_reason_that_the_document_knows(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        errors = (await described(client))["components"]["errors"]
        for method in ("thread/resume", "thread/read", "turn/start"):
            refused = await client.refused(method, {"threadId": NOT_TRIED, "input": []})
            assert refused.reason in errors, (method, refused)
