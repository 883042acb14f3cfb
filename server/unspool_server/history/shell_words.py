"""A command line to its words, in time that grows with its length. Owns no meaning of the words. Pure.

`shlex.split` says the same, but takes the square of a word's length: most of a minute for one of a megabyte.
"""

import re

_PIECE = re.compile(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<plain>[^ \t\r\n\\'\"]+)"
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>[^\"\\]*(?:\\.[^\"\\]*)*)\""
    r"|\\(?P<escaped>.)",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\([\\"])')


def split_words(line: str) -> list[str]:
    """The words as a POSIX shell would take them apart; nothing is expanded.

    Raises:
        ValueError: A quotation or an escape that does not end.
    """
    words: list[str] = []
    pieces: list[str] | None = None
    at = 0
    while at < len(line):
        found = _PIECE.match(line, at)
        if found is None:
            raise ValueError("no closing quotation or no escaped character")
        at = found.end()
        if found.lastgroup == "blank":
            if pieces is not None:
                words.append("".join(pieces))
            pieces = None
            continue
        text = found[found.lastgroup or 0]
        if found.lastgroup == "double":
            text = _IN_DOUBLE.sub(r"\1", text)
        if pieces is None:
            pieces = []
        pieces.append(text)
    if pieces is not None:
        words.append("".join(pieces))
    return words
