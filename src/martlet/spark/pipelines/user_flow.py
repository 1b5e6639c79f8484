"""How a user's file says what its functions read and write: the decorator `flow`, and loading such a file.

How it works: `flow` only notes on the function what it reads and writes; the runner finds the noted functions in the
file, in the order they stand there, and starts each as a query of its own. Parameters after the first have defaults,
which `--set NAME=VALUE` replaces, in the default's type. Each flow has a group of its own, named after the run's and
itself, because two flows may read one topic and stand at different places.

Rules: no Spark at import.
"""

import ast
import contextlib
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from martlet.base.errors import MartletError

if TYPE_CHECKING:
    from martlet.spark.pipelines.flows import PipelineRun

Function = TypeVar("Function", bound=Callable[..., Any])

_NOTE: Final = "__martlet_flow__"
_MODULE: Final = "martlet_pipeline_file"


class PipelineFileError(MartletError):
    """A user's file cannot be run; the text says why and what to write."""


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """A lake table as the place a flow writes to."""

    path: str
    layout: str
    partition_by: str | None


def lake_table(path: str, *, layout: str = "parquet", partition_by: str | None = None) -> LakeTarget:
    """A table in a directory, written exactly once."""
    return LakeTarget(path, layout, partition_by)


class FlowNote(NamedTuple):
    """What `flow` notes on a function."""

    reads: str
    writes: str | LakeTarget
    function: Callable[..., Any]


def flow(*, reads: str, writes: str | LakeTarget) -> Callable[[Function], Function]:
    """A function from the messages of a topic (several by commas) to what is written to a topic or a table."""

    def note(function: Function) -> Function:
        setattr(function, _NOTE, FlowNote(reads, writes, function))
        return function

    return note


class FlowOutline(NamedTuple):
    """What can be seen of a flow without running its file."""

    name: str
    topics: tuple[str, ...]
    """What it reads; empty where the file computes it."""
    parameters: Mapping[str, object]
    """Those that `--set` replaces, with their defaults; a default that is computed is None."""


def outline_of(path: str) -> list[FlowOutline]:
    """The flows of a file that is not run for it, before Spark is started: reading its text is enough.

    Raises PipelineFileError for a file that cannot be read or has no flow.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            tree = ast.parse(stream.read(), path)
    except FileNotFoundError:
        raise PipelineFileError(f"there is no file {path}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise PipelineFileError(f"{path} is not valid Python: {error}") from None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [_outline(function, call) for function in functions if (call := _flow_call(function)) is not None]
    if not found:
        raise PipelineFileError(
            f"{path} has no flow; write a function from a DataFrame to a DataFrame with "
            "@flow(reads=TOPIC, writes=TOPIC) above it (from martlet.spark.pipelines import flow)"
        )
    return found


def _flow_call(function: ast.FunctionDef) -> ast.Call | None:
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    return next((call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "flow"), None)


def _outline(function: ast.FunctionDef, call: ast.Call) -> FlowOutline:
    reads = next((keyword.value for keyword in call.keywords if keyword.arg == "reads"), None)
    topics = reads.value.split(",") if isinstance(reads, ast.Constant) and isinstance(reads.value, str) else []
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    named = [*zip(positional, defaults, strict=True)][1:]
    named += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    values = {name.arg: default.value if isinstance(default, ast.Constant) else None for name, default in named}
    return FlowOutline(function.name, tuple(topic.strip() for topic in topics), values)


def check_settings(outlines: list[FlowOutline], settings: Mapping[str, str]) -> None:
    """Raise PipelineFileError for a `--set` that no flow has a parameter for, or whose value does not fit it."""
    _refuse_unknown({name for outline in outlines for name in outline.parameters}, settings)
    for outline in outlines:
        for name in outline.parameters.keys() & settings.keys():
            _in_type_of(outline.parameters[name], name, settings[name])


def _refuse_unknown(known: set[str], settings: Mapping[str, str]) -> None:
    unknown = sorted(settings.keys() - known)
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        guess = f"; did you mean {close[0]!r}" if close else ""
        there_are = f"; there are {', '.join(sorted(known))}" if known else ""
        raise PipelineFileError(f"no flow of this file has a parameter {unknown[0]!r}{guess or there_are}")


def load_flows(path: str) -> list[FlowNote]:
    """The flows of a file. It is run for that, with a session there, because it may define functions of Spark's."""
    outline_of(path)
    module = _load_module(path)
    notes = [note for value in vars(module).values() if isinstance(note := getattr(value, _NOTE, None), FlowNote)]
    return [note for note in notes if note.function.__module__ == _MODULE]


def _load_module(path: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(_MODULE, path)
    if specification is None or specification.loader is None:
        raise PipelineFileError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[_MODULE] = module
    with _naming_the_line(path):
        specification.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _naming_the_line(path: str) -> Iterator[None]:
    """What a user's code raises, as a sentence with the line of the file in which it happened."""
    try:
        yield
    except MartletError:
        raise
    except Exception as error:
        # Spark is there when a user's code runs, and only then.
        from martlet.spark.pipelines.failure_text import failure_text

        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = f", line {own[-1]}" if own else ""
        raise PipelineFileError(f"{path}{line}: {type(error).__name__}: {failure_text(error)}") from error


def start_flows(run: "PipelineRun", notes: list[FlowNote], settings: Mapping[str, str]) -> None:
    """Start every flow of a file, each with the settings that its function has parameters for."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[_MODULE])  # type: ignore[no-untyped-call]
    wanted = {name for note in notes for name in list(inspect.signature(note.function).parameters)[1:]}
    _refuse_unknown(wanted, settings)
    for note in notes:
        name = note.function.__name__
        messages = run.read_stream(note.reads, group=f"{run.options.group}.{name}")
        with _naming_the_line(note.function.__code__.co_filename):
            frame = note.function(messages, **_arguments(note.function, settings))
        if isinstance(note.writes, LakeTarget):
            run.write_lake(
                frame,
                note.writes.path,
                layout=note.writes.layout,
                partition_by=note.writes.partition_by,
                name=name,
            )
        else:
            run.write_topic(frame, note.writes, name=name)


def _arguments(function: Callable[..., Any], settings: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if name in settings:
            arguments[name] = _in_type_of(parameter.default, name, settings[name])
    return arguments


def _in_type_of(default: object, name: str, text: str) -> object:
    if isinstance(default, bool):
        return text.lower() in ("true", "yes", "on", "1")
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            raise PipelineFileError(f"{name} must be a number like {default}, not {text!r}") from None
    return text
