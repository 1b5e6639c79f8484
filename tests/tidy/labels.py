"""Labels of invariants, as `LOG-3`: where each is defined, and where it is referred to.

A label is defined where it stands before its statement, in a module's head or in the list of docs/architecture.md:
"LOG-3 a write that fails …", "Invariants: (LOG-3) a write that fails …". It is referred to where it stands behind what
it names, "… (LOG-3)", or before "of `module.py`", "and", "to" or a comma. The invariants of replication hold for all of
the cluster: docs/architecture.md defines them, and heads may say what one of them means in their place.
"""

import re
from collections.abc import Iterator

LABEL = r"[A-Z]{3,5}-\d+"
OLD_LABEL = re.compile(r"\([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*\)|^[A-Z]\d{1,2} [a-z`]", re.MULTILINE)
_DEFINITION = re.compile(rf"(?:^(?:- )?|[:;.]\s+|[,;] and\s+)\(?({LABEL})\)?\s(?!of `|and\b|to\b)", re.MULTILINE)


def defined_in(text: str) -> list[str]:
    return _DEFINITION.findall(text)


def referred_to_in(text: str, prefixes: set[str]) -> Iterator[str]:
    """Every label in a text, if its prefix is one of ours: UTF-8 and KIP-848 are not."""
    for label in re.findall(rf"\b{LABEL}\b", text):
        if label.partition("-")[0] in prefixes:
            yield label
