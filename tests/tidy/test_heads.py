"""What the heads of modules say can be relied on: the tests they name exist, a label means one invariant."""

import ast
import re
from collections import defaultdict

from tests.tidy.labels import OLD_LABEL, defined_in, referred_to_in
from tests.tidy.source_tree import ROOT, python_files, text_files


def heads_of(*tops: str) -> dict[str, str]:
    """The head of every module in these folders, by path."""
    return {file.path: ast.get_docstring(file.tree) or "" for file in python_files() if file.top in tops}


def proofs_of(head: str) -> list[str]:
    """What a head's paragraph "Proved by" names: files, folders, and tests within a file."""
    _, _, proofs = head.partition("Proved by")
    return re.findall(r"\b(?:tests|bench|sim|docs)/[\w./:]*\w", proofs.split("\n\n")[0])


def is_there(proof: str) -> bool:
    path, _, test = proof.partition("::")
    place = ROOT / path
    return place.exists() and (not test or re.search(rf"def {test}\b", place.read_text("utf-8")) is not None)


def test_every_proof_that_a_head_names_exists() -> None:
    heads = heads_of("src", "sim", "bench")
    proofs = {path: proofs_of(head) for path, head in heads.items() if "Proved by" in head}
    assert len(proofs) > 190
    assert [path for path, named in proofs.items() if not named] == []
    assert [f"{path}: {proof}" for path, named in proofs.items() for proof in named if not is_there(proof)] == []


def test_a_proof_that_is_gone_is_found() -> None:
    head = "Head.\n\nProved by: tests/tidy/test_heads.py::test_a_proof_that_is_gone_is_found, `tests/gone.py`.\n\nMore."
    assert [is_there(proof) for proof in proofs_of(head)] == [True, False]
    assert not is_there("tests/tidy/test_heads.py::test_another")


def labels_of_the_cluster() -> set[str]:
    return set(defined_in((ROOT / "docs" / "architecture.md").read_text("utf-8")))


def defining_modules() -> dict[str, list[str]]:
    """Each label that a head defines, with the modules whose heads do."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, head in heads_of("src", "sim").items():
        for label in defined_in(head):
            found[label].append(path)
    return found


def test_a_label_means_one_invariant_in_all_of_the_source() -> None:
    modules = defining_modules()
    assert len(modules) > 200
    shared = labels_of_the_cluster()
    assert {label: paths for label, paths in modules.items() if len(paths) > 1 and label not in shared} == {}


def test_every_label_that_is_referred_to_is_defined() -> None:
    defined = set(defining_modules()) | labels_of_the_cluster()
    prefixes = {label.partition("-")[0] for label in defined}
    files = [file for file in text_files() if file.path.endswith((".py", ".md"))]
    unknown = {
        f"{file.path}: {label}"
        for file in files
        for label in referred_to_in(file.text, prefixes)
        if label not in defined
    }
    assert "\n".join(sorted(unknown)) == ""


def test_no_label_is_without_its_prefix() -> None:
    files = [file for file in python_files() if file.top in ("src", "sim")]
    found = [f"{file.path}: {match.group()}" for file in files for match in OLD_LABEL.finditer(file.text)]
    assert found == []


def test_a_definition_is_distinguished_from_a_reference() -> None:
    head = """Rules: a write is (ABC-9) whole.

    Invariants: (ABC-1) one; (ABC-2) two, and (ABC-3) three, as ABC-4 of `x.py` and of ABC-5, ABC-6.
    """
    assert defined_in(head) == ["ABC-1", "ABC-2", "ABC-3"]
    assert defined_in("Invariants:\nABC-1 one;\nABC-2 two.\n- ABC-3 three; ABC-4 four") == [
        "ABC-1",
        "ABC-2",
        "ABC-3",
        "ABC-4",
    ]
    assert defined_in("ABC-1 of `one.py`, and\nABC-2 to ABC-3 of `two.py` (ABC-4)") == []
    assert list(referred_to_in("UTF-8, KIP-848, (ABC-1, ABC-2)", {"ABC"})) == ["ABC-1", "ABC-2"]
