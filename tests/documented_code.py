"""The code blocks of the documents, for the tests that run them as a reader would."""

import re
from typing import NamedTuple

from tests.tidy.source_tree import ROOT


class CodeBlock(NamedTuple):
    """A fenced block: the language after the fence, and the lines between."""

    language: str
    text: str


def code_blocks(document: str) -> list[CodeBlock]:
    """Of the document at this path, from top to bottom."""
    text = (ROOT / document).read_text("utf-8")
    return [CodeBlock(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
