"""The tidy rules: each takes a file and yields what breaks it. How large, how named, what is never called.

A rule is a plain function from `SourceFile` to findings, so that it can be tried on made-up source. What may break a
rule stands in `exceptions.txt`, one line each, and that list may only shrink.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.tidy.source_tree import SourceFile

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
CONSTRUCTOR_PARAMETERS_MAX = 7
CLASS_METHODS_MAX = 30
TEST_NAME_WORDS_MIN = 3
HEAD_WORDS_MIN = 3
HEAD_PROSE_LINES_MAX = 12

PURE_PACKAGES = {
    "wire",
    "cluster",
    "configs",
    "coordinator",
    "groups",
    "log",
    "queues",
    "replication",
    "security",
    "transactions",
}
NOT_IN_PURE = {"asyncio", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}

# The ports' own modules, and the seeded twin, may read what everybody else is handed.
PORT_MODULES = {
    "src/martlet/base/clock.py",
    "src/martlet/base/randomness.py",
    "sim/randomness.py",
}
# Where one failure must not end the rest: requests, the broker's periodic work, runs of what users wrote.
SUPERVISORS = {
    "src/martlet/broker/serving/dispatch.py",
    "src/martlet/broker/coordinators/group_lag.py",
    "src/martlet/broker/partitions/housekeeping.py",
    "src/martlet/broker/following/fetcher.py",
    "src/martlet/broker/following/connection.py",
    "src/martlet/coordinator/shard.py",
    "src/martlet/spark/pipelines/launch.py",
    "src/martlet/spark/pipelines/supervisor.py",
}
NEVER_CALLED = {
    "breakpoint": "a debugger call",
    "print": "log it, or write through click.echo in cli",
}
CALLED_ONLY_IN_PORTS = {
    "asyncio.get_event_loop": "use get_running_loop",
    "datetime.now": "time comes from base.clock",
    "datetime.utcnow": "time comes from base.clock",
    "os.urandom": "randomness comes from base.randomness",
    "time.monotonic": "time comes from base.clock or the loop",
    "time.sleep": "nothing in the package sleeps in a thread",
    "time.time": "time comes from base.clock",
    "time.time_ns": "time comes from base.clock",
}
_LIST_BEGINS = re.compile(r"\s|- |\d+\. |\(?[A-Z]{3,5}-\d|Versions? |Invariants?\b|Proved by\b")

VAGUE_MODULES = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
VAGUE_CLASSES = ("Helper", "Helpers", "Manager", "Util", "Utils")

# Written in pieces, so that this file does not find itself.
LEFTOVERS = re.compile(r"\b(?:FIX" + "ME|TO" + r"DO|X" + r"XX)\b")
DIALECT = re.compile(r"\b(?:who" + r"ever|some" + r"body|an" + r"ew|con" + r"demn)\b", re.IGNORECASE)
MACHINE_PLACES = re.compile(
    r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers|t" + r"mp)/\w"
    r"|py" + r"pi\.org|python" + r"hosted|artif" + r"actory|--(?:extra-)?ind" + r"ex-url"
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """What breaks a rule: where (a path, or path::name) and what is wrong there."""

    place: str
    detail: str
    size: int = 0
    """How large it is, where an exception from the rule says how large it may be."""


Rule = Callable[[SourceFile], Iterator[Finding]]


def functions_of(file: SourceFile) -> Iterator[tuple[str, FunctionNode]]:
    """Every function with its place, methods and nested ones too."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, FunctionNode]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                yield f"{file.path}::{prefix}{child.name}", child
            inner = f"{prefix}{child.name}." if isinstance(child, FunctionNode | ast.ClassDef) else prefix
            yield from walk(child, inner)

    return walk(file.tree, "")


def file_size(file: SourceFile) -> Iterator[Finding]:
    lines = file.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield Finding(file.path, f"{lines} lines; at most {FILE_LINES_MAX}")


def function_size(file: SourceFile) -> Iterator[Finding]:
    for place, function in functions_of(file):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield Finding(place, f"{lines} lines; at most {FUNCTION_LINES_MAX}")


def constructor_parameters(file: SourceFile) -> Iterator[Finding]:
    for place, function in functions_of(file):
        if function.name == "__init__":
            arguments = function.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
            if count > CONSTRUCTOR_PARAMETERS_MAX:
                detail = f"{count} parameters; at most {CONSTRUCTOR_PARAMETERS_MAX}, group them in a dataclass"
                yield Finding(place, detail)


def class_methods(file: SourceFile) -> Iterator[Finding]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef):
            count = sum(isinstance(child, FunctionNode) for child in node.body)
            if count > CLASS_METHODS_MAX:
                detail = f"{count} methods; at most {CLASS_METHODS_MAX}, give some to a class of their own"
                yield Finding(f"{file.path}::{node.name}", detail, count)


def module_head(file: SourceFile) -> Iterator[Finding]:
    if file.name == "__init__.py" and not file.text.strip() and file.top != "src":
        return
    head = ast.get_docstring(file.tree) or ""
    first = head.split("\n\n")[0]
    if len(head.split()) < HEAD_WORDS_MIN:
        yield Finding(file.path, "does not open with a sentence on what lives here")
    elif not first.rstrip().endswith((".", ":", "!", "?")):
        yield Finding(file.path, "the first paragraph of its head is not a sentence")
    if re.search(r"copyright|licensed under", head, re.IGNORECASE):
        yield Finding(file.path, "licence text belongs in LICENSE")


def head_size(file: SourceFile) -> Iterator[Finding]:
    """Lists and tables count for nothing: versions, invariants, layouts, what proves them."""
    prose = 0
    in_list = False
    for line in (ast.get_docstring(file.tree) or "").splitlines():
        in_list = bool(line) and (in_list or bool(_LIST_BEGINS.match(line)))
        prose += bool(line) and not in_list
    if prose > HEAD_PROSE_LINES_MAX:
        yield Finding(file.path, f"{prose} lines of prose in its head; at most {HEAD_PROSE_LINES_MAX}")


def vague_name(file: SourceFile) -> Iterator[Finding]:
    if VAGUE_MODULES & set(file.path.removesuffix(".py").split("/")):
        yield Finding(file.path, "a name that says nothing about what is inside")
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_CLASSES):
            yield Finding(f"{file.path}::{node.name}", "a name that says nothing about what it does")


def impure(file: SourceFile) -> Iterator[Finding]:
    if file.package not in PURE_PACKAGES:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.split(".")[0] in NOT_IN_PURE:
                yield Finding(file.path, f"line {node.lineno}: a pure package imports {module}")


def banned_in_package(file: SourceFile) -> Iterator[Finding]:
    if file.top != "src":
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Assert):
            yield Finding(file.path, f"line {node.lineno}: assert vanishes under -O; use invariant()")
        elif isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield Finding(file.path, f"line {node.lineno}: something is not written yet")
        elif isinstance(node, ast.Call):
            called = ".".join(ast.unparse(node.func).split(".")[-2:])
            reason = NEVER_CALLED.get(called)
            if reason is None and file.path not in PORT_MODULES:
                reason = CALLED_ONLY_IN_PORTS.get(called)
            if reason is not None:
                yield Finding(file.path, f"line {node.lineno}: {called}(): {reason}")


def broad_except(file: SourceFile) -> Iterator[Finding]:
    """Catching everything is for the named supervisors, or for raising it again or carrying it to who waits for it."""
    if file.top != "src" or file.path in SUPERVISORS:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            is_broad = re.search(r"\b(?:BaseException|Exception|everything)\b", caught)
            last = node.body[-1]
            is_raised = isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
            is_passed_on = is_raised or "set_exception" in ast.unparse(last)
            if is_broad and not is_passed_on:
                yield Finding(file.path, f"line {node.lineno}: catches {caught}")


def test_name(file: SourceFile) -> Iterator[Finding]:
    if file.top != "tests":
        return
    for place, function in functions_of(file):
        is_test = function.name.startswith("test_") and file.name.startswith("test_")
        if is_test and len(function.name.split("_")) - 1 < TEST_NAME_WORDS_MIN:
            yield Finding(place, "a test's name says what is true, as a sentence")


def dodged_test(file: SourceFile) -> Iterator[Finding]:
    if file.top not in ("tests", "src"):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "xfail", "importorskip"):
            yield Finding(file.path, f"line {node.lineno}: a test is dodged with {node.attr}")
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if any(name.endswith(("mock", "Mock")) for name in names):
                yield Finding(file.path, f"line {node.lineno}: use the Sim… twins, not mocks")


def leftover(file: SourceFile) -> Iterator[Finding]:
    yield from _lines_matching(file, LEFTOVERS, "is unfinished work left in the tree")


def dialect(file: SourceFile) -> Iterator[Finding]:
    """Words that readers of this field stumble over: say who acts, and "again"; see docs/glossary.md."""
    if file.path.endswith((".py", ".txt")):
        yield from _lines_matching(file, DIALECT, "has a plainer word")


def machine_place(file: SourceFile) -> Iterator[Finding]:
    yield from _lines_matching(file, MACHINE_PLACES, "names one machine's place or a package index")


def _lines_matching(file: SourceFile, pattern: re.Pattern[str], meaning: str) -> Iterator[Finding]:
    for number, line in enumerate(file.text.splitlines(), 1):
        if match := pattern.search(line):
            yield Finding(file.path, f"line {number}: {match.group()!r} {meaning}")


PYTHON_RULES: dict[str, Rule] = {
    "file-size": file_size,
    "function-size": function_size,
    "constructor-parameters": constructor_parameters,
    "class-methods": class_methods,
    "module-head": module_head,
    "head-size": head_size,
    "vague-name": vague_name,
    "impure": impure,
    "banned-in-package": banned_in_package,
    "broad-except": broad_except,
    "test-name": test_name,
    "dodged-test": dodged_test,
}
TEXT_RULES: dict[str, Rule] = {
    "leftover": leftover,
    "dialect": dialect,
    "machine-place": machine_place,
}
