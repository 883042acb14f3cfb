"""Which provider answers: built by `wire_api` when first asked for, one instance per name and process."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from unspool_server.config import Config, ProviderConfig
from unspool_server.model.backoff import Sleep
from unspool_server.model.contract import ModelProvider


def build_provider(
    name: str,
    config: ProviderConfig,
    *,
    model: str,
    context_window: int | None = None,
    compact_prompt: str | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ModelProvider:
    """Build a provider; nothing is connected or imported before its first request.

    Args:
        name: The table's name, shown where the service has no display name.
        model: The default model that it lists.
        home: What a relative `script` is relative to.
        sleep: How to wait before a refused request is asked again.

    Raises:
        ConfigError: The offline script cannot be used.
    """
    if config.wire_api == "offline":
        from unspool_server.model.offline import OfflineProvider
        from unspool_server.model.script import read_script

        return OfflineProvider(
            script=read_script((home or Path()) / config.script) if config.script else None,
            model=model,
            pace_s=config.pace_s,
            compact_prompt=compact_prompt,
            compacts=config.name == "OpenAI",
            context_window=context_window,
            stream_max_retries=config.stream_max_retries if "stream_max_retries" in config.model_fields_set else 0,
        )
    from unspool_server.model.chat import ChatDialect
    from unspool_server.model.provider import HttpProvider
    from unspool_server.model.responses import ResponsesDialect
    from unspool_server.model.service import ModelService

    shown = config if config.name else config.model_copy(update={"name": name})
    service = ModelService(shown, os.environ if environ is None else environ, sleep=sleep)
    dialect = ChatDialect() if config.wire_api == "chat" else ResponsesDialect()
    return HttpProvider(service, dialect, model=model, context_window=context_window)


class Providers:
    """The providers of a process by name.

    Args:
        config: The daemon's configuration; threads may name any provider in it.
        home: What relative script paths are relative to.
        sleep: How to wait between tries, of requests here and of broken streams in a turn.
    """

    def __init__(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        home: Path | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.sleep = sleep
        self._config = config
        self._environ = environ
        self._home = home
        self._built: dict[str, ModelProvider] = {}

    def get(self, name: str | None = None) -> ModelProvider:
        """The provider of this name, by default the configured one; always the same instance.

        Raises:
            ConfigError: No such provider, or its script cannot be used.
        """
        config = self._config
        wanted = config.model_provider if name is None else name
        if wanted not in self._built:
            self._built[wanted] = build_provider(
                wanted,
                config.provider(wanted),
                model=config.model,
                context_window=config.model_context_window,
                compact_prompt=config.compact_prompt,
                environ=self._environ,
                home=self._home,
                sleep=self.sleep,
            )
        return self._built[wanted]

    async def close(self) -> None:
        """Close every provider that was built."""
        built, self._built = self._built, {}
        for provider in built.values():
            await provider.close()
