"""Command lines to words and back."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_server.history.shell_words import split_words

LINES = st.text(st.sampled_from("ab \t\r\n'\"\\$é\0"), max_size=24)


@given(LINES)
def test_words_are_those_of_the_standard_library(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        with pytest.raises(ValueError, match="no closing"):
            split_words(line)
    else:
        assert split_words(line) == expected


def test_a_long_word_is_taken_apart_at_once() -> None:
    words = ["sh", "-c", "it's " + "x" * 3_000_000]
    assert split_words(shlex.join(words)) == words
