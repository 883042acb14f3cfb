"""What the model reads of commands: outputs of `exec_command`, user commands, and cuts (07 §5). Pure."""

import shlex
from dataclasses import dataclass

from unspool_server.processes.output import omission

OUTPUT_LIMIT_BYTES = 10_000
"""Of one output; `max_output_tokens` may only lower it (07 §5)."""

BYTES_PER_TOKEN = 4

STDIN_CLOSED = (
    "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open"
)


@dataclass(frozen=True, slots=True)
class Captured:
    """Output of a command since it was last told.

    Attributes:
        total_bytes: Of all of it, what was left out included.
        omitted_bytes: Left out between head and tail of `text`, which says so.
    """

    text: str
    total_bytes: int
    omitted_bytes: int = 0

    @property
    def tokens(self) -> int:
        """The estimate for all of it."""
        return -(-self.total_bytes // BYTES_PER_TOKEN)


def shown_command(argv: tuple[str, ...]) -> str:
    """A command as clients see it: one line that a shell would read as these words."""
    return shlex.join(argv)


def exec_output(
    captured: Captured, *, chunk_id: str, wall_s: float, state: str, max_output_tokens: int | None = None
) -> str:
    """The output of a call.

    Args:
        chunk_id: Six hexadecimal digits.
        state: `Process exited with code N` or `Process running with session ID N`.
    """
    head = f"Chunk ID: {chunk_id}\nWall time: {wall_s:.4f} seconds\n{state}\n"
    return f"{head}Original token count: {captured.tokens}\nOutput:\n{cut_output(captured, max_output_tokens)}"


def user_command_text(command: str, *, exit_code: int, wall_s: float, captured: Captured) -> str:
    """What the model reads of a command that the user ran."""
    result = f"Exit code: {exit_code}\nDuration: {wall_s:.4f} seconds\nOutput:\n{cut_output(captured)}"
    return (
        f"<user_shell_command>\n<command>\n{command}\n</command>\n<result>\n{result}\n</result>\n</user_shell_command>"
    )


def cut_output(captured: Captured, max_output_tokens: int | None = None) -> str:
    """The output itself where it fits, else its head and tail with a marker between them, and two lines before it."""
    limit, by_tokens = OUTPUT_LIMIT_BYTES, False
    if max_output_tokens is not None and max_output_tokens * BYTES_PER_TOKEN < limit:
        limit, by_tokens = max(max_output_tokens, 0) * BYTES_PER_TOKEN, True
    raw = captured.text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return captured.text
    head = raw[: limit // 2].decode("utf-8", "ignore")
    tail = raw[len(raw) - limit // 2 :].decode("utf-8", "ignore") if limit else ""
    if by_tokens:
        gone = f"…{max(captured.tokens - (max_output_tokens or 0), 0)} tokens truncated…"
    else:
        gone = f"…{len(captured.text) - len(head) - len(tail)} chars truncated…"
    if captured.omitted_bytes:
        second = omission(captured.omitted_bytes).strip("\n")
    else:
        second = f"Total output lines: {len(captured.text.splitlines())}"
    return f"Warning: truncated output (original token count: {captured.tokens})\n{second}\n\n{head}{gone}{tail}"


def failed(reason: str) -> str:
    """The output of a command that did not run, in the reference's words."""
    message = _quoted(f"Rejected({_quoted(reason)})")
    return f"exec_command failed: CreateProcess {{ message: {message} }}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def not_started(reason: str) -> str:
    """The output of a command that the system would not start."""
    return failed(f"Failed to create unified exec process: {reason}")
