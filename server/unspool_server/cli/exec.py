"""`unspool exec`: one turn without a user interface, with the flags, lines and exit status of `codex exec`.

Parsing only; `exec_run` does it. Words and options may be mixed, as the reference allows:

    exec [PROMPT]     exec resume ID [PROMPT]     exec resume --last [PROMPT]     exec fork ID [PROMPT]
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from unspool_server.cli.options import ConfigFlags, Failure, Remote, config_options, remote_options, server_options

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")
ANY_FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What one run shall do.

    Attributes:
        mode: A new thread, or an old one resumed or forked.
        thread: Id or name for `resume` and `fork`; None means the newest one.
        prompt: None only for a fork that runs no turn.
        cwd: The absolute working folder; None leaves it to a remote server.
        more_folders: Absolute folders that belong to the workspace beside the working folder.
        all_folders: Look for the newest thread in every folder.
        overrides: `-c` values for a remote server, which has its own configuration.
    """

    mode: Literal["start", "resume", "fork"]
    prompt: str | None
    thread: str | None = None
    model: str | None = None
    cwd: str | None = None
    sandbox: str | None = None
    more_folders: tuple[str, ...] = ()
    ephemeral: bool = False
    all_folders: bool = False
    images: tuple[Path, ...] = ()
    output_schema: Any = None
    overrides: tuple[tuple[str, str], ...] = ()
    thread_source: str | None = None


@click.command("exec", context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="[resume|fork] [ID] [PROMPT]")
@click.option("-m", "--model", help="The model to ask.")
@click.option("-C", "--cd", "folder", type=click.Path(path_type=Path), help="Working folder.")
@click.option("-s", "--sandbox", type=click.Choice(SANDBOX_MODES), help="Sandbox of the thread.")
@click.option("-i", "--image", "images", type=ANY_FILE, multiple=True, help="Image for the first message.")
@click.option("--add-dir", "more_folders", type=FOLDER, multiple=True, help="Further folder of the workspace.")
@click.option("--json", "--experimental-json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
@click.option("-o", "--output-last-message", "last_message", type=ANY_FILE, help="Write the last message to a file.")
@click.option("--output-schema", "schema_file", type=ANY_FILE, help="JSON Schema of the final answer.")
@click.option("--color", type=click.Choice(("always", "never", "auto")), default="auto", show_default=True)
@click.option("--ephemeral", is_flag=True, help="Keep nothing on disk.")
@click.option("--last", is_flag=True, help="resume: the newest thread of this folder.")
@click.option("--all", "all_folders", is_flag=True, help="resume --last: of any folder.")
@click.option("--thread-source", help="How the new thread is classified.")
@click.option("--skip-git-repo-check", is_flag=True, help="Taken for compatibility; no check is made.")
@click.option("--dangerously-bypass-approvals-and-sandbox", "bypass", is_flag=True, help="-s danger-full-access.")
@config_options
@remote_options
def exec_command(
    words: tuple[str, ...],
    *,
    flags: ConfigFlags,
    remote: Remote | None,
    as_json: bool,
    color: str,
    last_message: Path | None,
    **chosen: Any,
) -> None:
    """Run one turn and print its result.

    PROMPT `-`, or none, reads it from stdin; piped stdin beside a PROMPT is appended to it as a <stdin> block. The
    transcript goes to stderr, the last message to stdout. Status: 0, or 1 when the turn failed or was interrupted.
    """
    options = server_options(flags)
    request = exec_request(words, remote=remote is not None, settings=options.overrides, **chosen)
    from unspool_server.cli import connect, exec_run

    output = exec_run.Output(as_json=as_json, color={"always": True, "never": False}.get(color))

    with connect.reported():
        status = exec_run.run(options, request, output, remote=remote, last_message=last_message)
    raise SystemExit(status)


def exec_request(
    words: tuple[str, ...],
    *,
    remote: bool,
    settings: Any,
    model: str | None,
    folder: Path | None,
    sandbox: str | None,
    more_folders: tuple[Path, ...],
    images: tuple[Path, ...],
    schema_file: Path | None,
    ephemeral: bool,
    last: bool,
    all_folders: bool,
    thread_source: str | None,
    skip_git_repo_check: bool,
    bypass: bool,
) -> ExecRequest:
    """Read words, files and stdin.

    Raises:
        click.UsageError: Words that fit no form (status 2).
        Failure: No prompt, or a file that cannot be read (status 1).
    """
    mode, thread, given = split_words(words, last=last)
    return ExecRequest(
        mode=mode,
        thread=thread,
        prompt=_prompt(mode, given),
        model=model,
        cwd=_folder(folder, remote=remote),
        sandbox="danger-full-access" if bypass else sandbox,
        more_folders=tuple(str(each if remote else each.absolute()) for each in more_folders),
        ephemeral=ephemeral,
        all_folders=all_folders,
        images=tuple(image.absolute() for image in images),
        output_schema=None if schema_file is None else _schema(schema_file),
        overrides=tuple(settings.items()) if remote else (),
        thread_source=thread_source,
    )


def split_words(
    words: tuple[str, ...], *, last: bool
) -> tuple[Literal["start", "resume", "fork"], str | None, str | None]:
    """Mode, thread and prompt of the words. Raises click.UsageError."""
    mode: Literal["start", "resume", "fork"] = "start"
    if words and words[0] in ("resume", "fork"):
        mode, words = ("resume" if words[0] == "resume" else "fork"), words[1:]
    thread: str | None = None
    if mode != "start" and not last:
        if not words:
            raise click.UsageError(f"{mode} needs a thread id" + (" or --last" if mode == "resume" else ""))
        thread, words = words[0], words[1:]
    elif mode == "start" and last:
        raise click.UsageError("--last goes with resume")
    if len(words) > 1:
        raise click.UsageError(f"unexpected argument '{words[1]}' found")
    return mode, thread, (words[0] if words else None)


def _prompt(mode: str, given: str | None) -> str | None:
    """The prompt, from stdin where the reference takes it from there (measured)."""
    if given is None and mode == "fork":
        return None
    if given is None or given == "-":
        if given is None and sys.stdin.isatty():
            raise Failure("No prompt provided. Either specify one as an argument or pipe the prompt into stdin.")
        if given is None:
            click.echo("Reading prompt from stdin...", err=True)
        text = _stdin()
        if not text.strip():
            raise Failure("No prompt provided via stdin.")
        return text
    if mode != "start" or sys.stdin.isatty():
        return given
    click.echo("Reading additional input from stdin...", err=True)
    more = _stdin()
    if not more.strip():
        return given
    return f"{given}\n\n<stdin>\n{more}" + ("" if more.endswith("\n") else "\n") + "</stdin>"


def _stdin() -> str:
    content = sys.stdin.buffer.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(f"Failed to read prompt from stdin: input is not valid UTF-8 (byte {error.start}).") from error


def _folder(folder: Path | None, *, remote: bool) -> str | None:
    """The working folder. A remote server has folders of its own, so there a given one is passed on as it is."""
    if remote:
        return str(folder) if folder is not None else None
    chosen = (folder or Path()).absolute()
    if not chosen.is_dir():
        raise Failure(f"Error: no folder {chosen}")
    return str(chosen.resolve())


def _schema(path: Path) -> Any:
    import json

    try:
        schema = json.loads(path.read_bytes())
    except OSError as error:
        raise Failure(f"Failed to read output schema file {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"Output schema file {path} is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise Failure(f"Output schema file {path} is not a JSON object")
    return schema
