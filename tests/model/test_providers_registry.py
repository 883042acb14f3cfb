"""Which provider answers for which name."""

import json
from pathlib import Path

import pytest
from unspool_server.config import Config, ProviderConfig
from unspool_server.config_base import ConfigError
from unspool_server.model.contract import ItemDone, ModelRequest
from unspool_server.model.offline import OfflineProvider
from unspool_server.model.provider import HttpProvider
from unspool_server.model.registry import Providers


async def test_the_wire_api_decides_and_each_name_is_built_once() -> None:
    tables = {
        "r": ProviderConfig(name="OpenAI", wire_api="responses"),
        "c": ProviderConfig(name="OpenAI", wire_api="chat"),
    }
    providers = Providers(Config(model_providers=tables))

    assert isinstance(providers.get(), OfflineProvider)
    assert isinstance(providers.get("r"), HttpProvider) and isinstance(providers.get("c"), HttpProvider)
    assert providers.get("r").compacts  # which only the Responses API has
    assert not providers.get("c").compacts
    assert providers.get("r") is providers.get("r")
    assert providers.get() is providers.get("offline")
    with pytest.raises(ConfigError, match="Model provider `x` not found"):
        providers.get("x")
    await providers.close()


async def test_the_built_in_openai_service_compacts_by_itself() -> None:
    providers = Providers(Config())

    assert providers.get("openai").compacts
    assert not providers.get("offline").compacts
    await providers.close()


async def test_a_script_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text(json.dumps([[{"say": "scripted"}]]))
    table = ProviderConfig(wire_api="offline", script="replies.json")
    providers = Providers(Config(model_provider="o", model_providers={"o": table}), home=tmp_path)

    events = [event async for event in providers.get().stream(ModelRequest(model="m", input=[], cache_key="t"))]

    said = [event.item["content"][0]["text"] for event in events if isinstance(event, ItemDone)]
    assert said == ["scripted"]
    await providers.close()


def test_a_missing_script_is_refused_when_the_provider_is_asked_for(tmp_path: Path) -> None:
    table = ProviderConfig(wire_api="offline", script="none.json")
    providers = Providers(Config(model_providers={"o": table}), home=tmp_path)

    with pytest.raises(ConfigError, match="cannot read"):
        providers.get("o")
