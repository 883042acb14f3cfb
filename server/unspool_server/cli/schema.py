"""`unspool schema`: JSON Schema files for other languages."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where to; made if missing.",
)
def schema(out: Path) -> None:
    """Write JSON Schema of the wire and the log, and the protocol as OpenRPC and AsyncAPI."""
    from unspool_protocol.schema import write_schemas

    from unspool_server import __version__

    write_schemas(out, __version__)
    click.echo(f"wrote {out}")
