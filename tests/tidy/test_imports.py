"""The modules of the source import each other without a cycle.

Imports within functions count like those at the top: they put a cycle off and do not end it. Imports for the type
checker alone do not count, so a collaborator may name its owner's type. The directions between packages, for which
every import counts, are import-linter's.
"""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.tidy.source_tree import SourceFile, python_files


def module_name(file: SourceFile) -> str:
    return file.path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (inner for branch in node.orelse for inner in (branch, *nodes_that_run(branch)))
        else:
            yield node
            yield from nodes_that_run(node)


def imports_of(file: SourceFile, modules: set[str]) -> Iterator[str]:
    """The modules among these that a file imports, or imports names from, when it runs."""
    for node in nodes_that_run(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one cycle, each imported by the one before it; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]
    return []


def test_no_module_of_the_source_imports_itself_by_way_of_others() -> None:
    files = {module_name(file): file for file in python_files() if file.top == "src"}
    assert len(files) > 400
    graph = {name: {other for other in imports_of(file, set(files)) if other in files} for name, file in files.items()}
    assert cycle_in(graph) == []


@pytest.mark.parametrize(
    "text",
    ["import a.other", "from a import other", "from a.other import x", "def f():\n  from a.other import x"],
)
def test_a_cycle_is_found_however_it_is_imported(text: str) -> None:
    modules = {"a", "a.one", "a.other"}
    one = set(imports_of(SourceFile("src/a/one.py", text), modules))
    other = set(imports_of(SourceFile("src/a/other.py", "from a.one import y"), modules))
    assert cycle_in({"a.one": one, "a.other": other}) in (
        ["a.one", "a.other", "a.one"],
        ["a.other", "a.one", "a.other"],
    )
    assert cycle_in({"a.one": one, "a.other": set()}) == []


def test_an_import_for_the_type_checker_makes_no_cycle() -> None:
    text = "if TYPE_CHECKING:\n  import a.one\nelse:\n  import a.two\nimport a"
    assert set(imports_of(SourceFile("src/a/other.py", text), {"a", "a.one", "a.two"})) == {"a", "a.two"}
