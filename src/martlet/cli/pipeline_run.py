"""`martlet pipeline run`: a ready pipeline by its name, a Python file, or a project of Spark Declarative Pipelines.

The options of a ready pipeline come from its line in the catalogue, so `run NAME --help` shows exactly those. Spark is
imported when a pipeline starts, not before.
"""

import contextlib
import dataclasses
import difflib
import functools
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from martlet.base.errors import MartletError
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import ASSIGNMENT, START, Target, connects, json_option
from martlet.cli.pipeline_checks import as_wrong_usage, check_java, check_surroundings, check_topics
from martlet.cli.pipeline_progress import ProgressPrinter
from martlet.cli.start_position import Start, StartKind
from martlet.spark.pipelines.catalogue import READY, ReadyPipeline
from martlet.spark.pipelines.state_directory import DEFAULT_STATE, RunDirectory, RunInUse

if TYPE_CHECKING:
    from martlet.spark.pipelines.flows import PipelineRun
    from martlet.spark.pipelines.launch import LaunchRequest

Function = TypeVar("Function", bound=Callable[..., Any])

_INSTALL: Final = "pip install '.[spark]' in Martlet's source directory brings what pipelines need"

state_option = click.option(
    "--state",
    default=DEFAULT_STATE,
    show_default=True,
    metavar="DIR",
    help="Where runs keep their status and checkpoints.",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """What every `run` takes, whatever it runs."""

    target: Target
    name: str | None
    state: str
    group: str | None
    start: Start
    every: float | None
    until_end: bool
    messages_per_batch: int | None
    master: str
    settings: Mapping[str, str]
    same_env: bool
    as_json: bool


def common_options(function: Function) -> Function:
    """Adds the options of `CommonOptions` and hands them over as `common`."""

    @click.option(
        "--name", metavar="NAME", help="What to call the run; it keeps its place in the topic under this name."
    )
    @state_option
    @click.option(
        "--group",
        metavar="GROUP",
        help="Group to commit progress to; flows of a file have GROUP.FLOW each.  [default: the run's name]",
    )
    @click.option(
        "--from",
        "start",
        type=START,
        default="earliest",
        show_default=True,
        help="Where to begin when the run is new: earliest, latest or @TIME.",
    )
    @click.option(
        "--every",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Start a batch every so many seconds.  [default: the pipeline's]",
    )
    @click.option("--until-end", is_flag=True, help="Process what is there now, then finish.")
    @click.option("--messages-per-batch", type=click.IntRange(min=1), metavar="N", help="At most N in one batch.")
    @click.option("--master", default="local[*]", show_default=True, help="Where Spark runs, like spark://HOST:7077.")
    @click.option("--conf", "settings", type=ASSIGNMENT, multiple=True, help="A setting for Spark. May be repeated.")
    @click.option(
        "--same-env", is_flag=True, help="Executors have this Python environment at the same path; send no packages."
    )
    @json_option
    @connects
    @functools.wraps(function)
    def with_common(*args: Any, settings: Sequence[tuple[str, str]], **kwargs: Any) -> Any:
        names = [field.name for field in dataclasses.fields(CommonOptions) if field.name != "settings"]
        common = CommonOptions(settings=dict(settings), **{name: kwargs.pop(name) for name in names})
        return function(*args, common=common, **kwargs)

    return with_common  # type: ignore[return-value]


class RunGroup(click.Group):
    """Commands made on demand: the ready pipelines by name, and anything that is a file or a project by its path."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(READY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in READY:
            return _ready_command(READY[cmd_name])
        if cmd_name.endswith(".py"):
            return _file_command(cmd_name)
        if cmd_name.endswith((".yml", ".yaml", "/")) or os.path.isdir(cmd_name):
            return _project_command(cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            close = difflib.get_close_matches(name, READY, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(
                f"{name!r} is no ready pipeline ({', '.join(READY)}), no Python file and no project{hint}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=RunGroup,
    subcommand_metavar="NAME|FILE|PROJECT [OPTIONS]",
    short_help="Run a ready pipeline, a file with flows, or a project.",
)
def run() -> None:
    """Run a ready pipeline, a Python file with flows, or a declarative project, until it ends or is stopped.

    \b
    martlet pipeline run archive --topic orders --to archive
    martlet pipeline run clean.py --until-end
    martlet pipeline run my-project/
    """


def _ready_command(pipeline: ReadyPipeline) -> click.Command:
    @common_options
    def start(common: CommonOptions, **values: Any) -> None:
        options = pipeline.options(**values)

        def prepare() -> "Callable[[PipelineRun], None]":
            with as_wrong_usage():
                pipeline.check(options)
            check_topics(common.target, pipeline.topics_read(options))
            return functools.partial(_define_ready, pipeline, options)

        _run(common, pipeline.name, pipeline.every_seconds, prepare)

    hints = typing.get_type_hints(pipeline.options)
    own = [_option(field, hints[field.name]) for field in dataclasses.fields(pipeline.options)]
    shared = getattr(start, "__click_params__", [])
    return click.Command(
        pipeline.name,
        callback=start,
        params=[*own, *reversed(shared)],
        help=pipeline.summary,
        short_help=pipeline.summary,
    )


def _define_ready(pipeline: ReadyPipeline, options: Any, run: "PipelineRun") -> None:
    pipeline.start(run, options)


def _option(field: "dataclasses.Field[Any]", kind: Any) -> click.Option:
    """A flag for a field of a pipeline's options."""
    flag = f"--{field.name.replace('_', '-')}"
    is_required = field.default is dataclasses.MISSING
    shared: dict[str, Any] = {"help": field.metadata["help"], "required": is_required}
    if field.metadata["choices"]:
        shared["type"] = click.Choice(field.metadata["choices"])
    elif kind is bool:
        return click.Option([flag], is_flag=True, default=False, **shared)
    elif typing.get_origin(kind) is tuple:
        return click.Option([flag], multiple=True, metavar="TEXT", **shared)
    else:
        shared["type"] = kind
    if not is_required:
        shared |= {"default": field.default, "show_default": field.default != ""}
    return click.Option([flag], **shared)


def _file_command(path: str) -> click.Command:
    @click.option("--set", "values", type=ASSIGNMENT, multiple=True, help="A parameter of the file's flows.")
    @common_options
    def start(common: CommonOptions, values: Sequence[tuple[str, str]]) -> None:
        def prepare() -> "Callable[[PipelineRun], None]":
            from martlet.spark.pipelines.user_flow import check_settings, load_flows, outline_of, start_flows

            with as_wrong_usage():
                outlines = outline_of(path)
                check_settings(outlines, dict(values))
            check_topics(common.target, [topic for outline in outlines for topic in outline.topics])
            return lambda run: start_flows(run, load_flows(path), dict(values))

        _run(common, path, 0.0, prepare)

    return click.Command(
        path,
        callback=start,
        params=[*reversed(getattr(start, "__click_params__", []))],
        help=f"Run the flows of {path}.",
    )


def _project_command(path: str) -> click.Command:
    @click.option("--name", metavar="NAME", help="What to call the run.  [default: the project's directory]")
    @state_option
    @click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
    @click.option("--conf", "settings", type=ASSIGNMENT, multiple=True, help="A setting for Spark. May be repeated.")
    @json_option
    def start(name: str | None, state: str, master: str, settings: Sequence[tuple[str, str]], as_json: bool) -> None:
        with _reported_failures():
            _run_project(path, name, state, master, dict(settings), as_json)

    return click.Command(
        path,
        callback=start,
        params=[*reversed(getattr(start, "__click_params__", []))],
        help=f"Run the project {path}.",
    )


def _run_project(
    path: str, name: str | None, state: str, master: str, settings: Mapping[str, str], as_json: bool
) -> None:
    from martlet.spark.pipelines.declarative import find_specification, run_project
    from martlet.spark.pipelines.flows import RunOptions
    from martlet.spark.pipelines.launch import LaunchRequest, first_status
    from martlet.spark.pipelines.status import RunState

    specification = find_specification(path)
    if specification is None:
        raise CommandFailed(ExitCode.USAGE, f"{path} holds no spark-pipeline.yml", "`spark-pipelines init` makes one")
    run_name = name or os.path.basename(os.path.dirname(os.path.abspath(specification)))
    idle = RunOptions(bootstrap="", group="", starting={})
    request = LaunchRequest(name=run_name, pipeline=path, state=state, run=idle, master=master)
    with ProgressPrinter(as_json=as_json) as printer:
        status = run_project(
            specification, RunDirectory(state, run_name), first_status(request), settings, printer.show
        )
    if status.state is RunState.FAILED:
        raise CommandFailed(
            ExitCode.FAILURE, f"pipeline {run_name} failed: {status.last_error}", _log_hint(state, run_name)
        )


def _run(
    common: CommonOptions, pipeline: str, every: float, prepare: "Callable[[], Callable[[PipelineRun], None]]"
) -> None:
    """Start a run and show it until it ends."""
    name = common.name or os.path.basename(pipeline).removesuffix(".py")
    with _needing_packages():
        request = _request(common, name, pipeline, every)
        check_surroundings(common.master)
        with as_wrong_usage():
            RunDirectory(common.state, name)
        define = prepare()
        check_java()
    with _reported_failures(_log_hint(common.state, name)):
        from martlet.spark.pipelines.launch import launch

        with ProgressPrinter(as_json=common.as_json) as printer:
            launch(request, define, printer.show)


def _request(common: CommonOptions, name: str, pipeline: str, every: float) -> "LaunchRequest":
    from martlet.spark.pipelines.flows import RunOptions
    from martlet.spark.pipelines.launch import LaunchRequest

    options = RunOptions(
        bootstrap=",".join(str(address) for address in common.target.bootstrap),
        group=common.group or name,
        starting=_starting(common.start),
        every_seconds=every if common.every is None else common.every,
        until_end=common.until_end,
        messages_per_batch=common.messages_per_batch,
    )
    return LaunchRequest(
        name=name,
        pipeline=pipeline,
        state=common.state,
        run=options,
        master=common.master,
        settings=common.settings,
        same_environment=common.same_env,
    )


def _starting(start: Start) -> dict[str, str]:
    """The source's options for a --from."""
    if start.kind in (StartKind.EARLIEST, StartKind.LATEST):
        return {"startingOffsets": start.kind.value}
    if start.kind is StartKind.TIME:
        return {"startingTimestamp": str(start.number)}
    raise click.BadParameter("a pipeline begins at earliest, latest or @TIME", param_hint="--from")


@contextlib.contextmanager
def _reported_failures(next_step: str | None = None) -> Iterator[None]:
    """What pipelines raise, as an exit code and a sentence."""
    try:
        with _needing_packages():
            yield
    except RunInUse as error:
        hint = "`martlet pipeline stop NAME` ends it; --name runs another"
        raise CommandFailed(ExitCode.CONFLICT, str(error), hint) from None
    except CommandFailed:
        raise
    except MartletError as error:
        raise CommandFailed(ExitCode.FAILURE, str(error), next_step) from None


@contextlib.contextmanager
def _needing_packages() -> Iterator[None]:
    """An installation without what Spark needs is told what brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pyspark", "pyarrow", "pandas", "numpy", "py4j"):
            raise
        raise CommandFailed(ExitCode.USAGE, f"{error.name} is not installed", _INSTALL) from None


def _log_hint(state: str, name: str) -> str:
    return f"all that Spark said is in {os.path.join(state, name, 'spark.log')}"
