"""The command `unspool`. Subcommands are imported when they are run, so that help and start-up stay quick."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from unspool_server import __version__

COMMANDS: Mapping[str, tuple[str, str]] = {
    "app-server": ("app_server:app_server", "Serve clients over stdio, a WebSocket or a unix socket."),
    "serve": ("serve:serve", "Serve a WebSocket on this machine and say how to reach it."),
    "exec": ("exec:exec_command", "Run one turn and print its result."),
    "threads": ("threads:threads", "List, show and change stored threads."),
    "import": ("importing:import_command", "Bring in threads of Codex, Claude Code and Pi."),
    "verify": ("checking:verify", "Check logs for damage."),
    "repair": ("checking:repair", "Write a clean copy of a damaged log beside it."),
    "replay": ("replay:replay", "Show a thread's events again, at their own pace if you like."),
    "health": ("operating:health", "Ask whether a server lives; for health checks."),
    "doctor": ("operating:doctor", "Tell how a running server or a home does."),
    "stop": ("operating:stop", "End a running server in order."),
    "demo": ("demo:demo", "Show the main job from start to end; no key needed."),
    "schema": ("schema:schema", "Write JSON Schema of the wire and the log."),
}
"""Name -> where it is below this package, and its line of help. Kept here so that help imports nothing."""


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what the system refuses it is told in one line."""
        try:
            return super().invoke(ctx)
        except ConnectionError:  # a reader that has gone away ends a command quietly
            raise
        except OSError as error:
            place = f": {error.filename}" if error.filename is not None else ""
            raise click.ClickException(f"{error.strerror or error}{place}") from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found: Any = getattr(importlib.import_module(f"unspool_server.cli.{module}"), name)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="unspool", message="%(prog)s %(version)s")
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting; a TOML value."
)
@click.pass_context
def main(ctx: click.Context, settings: tuple[str, ...]) -> None:
    """Unspool: agent threads over append-only logs, for Codex app-server clients."""
    ctx.obj = settings


if __name__ == "__main__":
    main(prog_name="unspool")
