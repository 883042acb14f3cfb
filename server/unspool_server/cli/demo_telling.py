"""What the demo prints: chapters, sentences, streamed answers, and claims that end it when they do not hold."""

import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

WIDTH = 92
INDENT = 3


class ClaimFailed(Exception):
    """Something that the demo says about the daemon is not so; the text is the claim."""


class Telling:
    """Calm output for people; `plain` is the same without colours, for logs of CI."""

    def __init__(self, *, plain: bool, file: TextIO | None = None) -> None:
        out = file or sys.stdout
        colours = not plain and out.isatty()
        self._console = Console(file=out, no_color=not colours, highlight=False, width=None if colours else WIDTH)
        self._chapters = 0
        self.claims = 0

    def chapter(self, title: str) -> None:
        """Begin the next numbered part."""
        self._chapters += 1
        self._console.print()
        self._console.print(Text(f"{self._chapters:>2} {title}", style="bold"))

    def say(self, text: str) -> None:
        """Explain, in words."""
        self._block(Text(text, style="dim"))

    def quote(self, who: str, text: str) -> None:
        """A whole message of somebody."""
        self._block(Text.assemble((f"{who}: ", "cyan"), text))

    def piece(self, text: str, *, first: str = "") -> None:
        """A piece of a message as it comes in; `first` says who speaks."""
        if first:
            self._console.print(Text(" " * INDENT), Text(f"{first}: ", style="cyan"), sep="", end="")
        self._console.print(Text(text), end="", soft_wrap=True)
        self._console.file.flush()

    def end_pieces(self, tail: str = "") -> None:
        """End the line of a streamed message."""
        self._console.print(Text(tail, style="bold red"))

    def claim(self, holds: bool, text: str) -> None:
        """State something, having looked. Raises ClaimFailed when it is not so."""
        if not holds:
            raise ClaimFailed(text)
        self.claims += 1
        self._block(Text.assemble(("✓ ", "green"), text))

    def verdict(self, text: str, *, good: bool) -> None:
        """The last line."""
        self._console.print()
        self._console.print(Text(text, style="bold green" if good else "bold red"), soft_wrap=True)

    def _block(self, text: Text) -> None:
        margin = " " * INDENT
        lines = text.wrap(self._console, min(self._console.width, WIDTH) - INDENT)
        for line in lines:
            line.rstrip()
            self._console.print(Text(margin) + line, soft_wrap=True)
