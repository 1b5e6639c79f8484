"""The documents say what is so: packages, settings, metrics, exit codes, links, commands are compared with the code."""

import dataclasses
import re

import pytest

from martlet.broker.ground.settings import BrokerSettings
from martlet.cli.exit_codes import MEANINGS
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.metrics import BrokerMetrics
from tests.tidy.commands import commands_in, fault_of, texts_of
from tests.tidy.source_tree import ROOT, SourceFile, packages, python_files, text_files

DOCUMENTS = [file for file in text_files() if file.path.endswith(".md")]
GUIDES = [file for file in DOCUMENTS if "decisions" not in file.path]
"""Those that speak of the source as it is now; a decision speaks of the day it was taken."""


def document(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every table row of a document, without heads and rulers."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_packages_lists_every_folder_and_no_other() -> None:
    listed = [row[0].strip("`/") for row in rows(document("src/martlet/README.md")) if row[0].startswith("`")]
    assert sorted(listed) == packages()


def test_every_setting_stands_in_the_operations_page_with_its_default_and_meaning() -> None:
    listed = {row[0].strip("`"): row[1:] for row in rows(document("docs/operations.md")) if len(row) == 3}
    for field in dataclasses.fields(BrokerSettings):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        shown = f"`{default}`" if default else "empty"
        assert listed.get(field.name) == [shown, field.metadata["help"]], field.name


def test_every_metric_of_ours_stands_in_the_operations_page() -> None:
    text = MetricsRegistry(BrokerMetrics(), api_names={}, info={}).render().decode()
    names = re.findall(r"^# TYPE (martlet_\w+) ", text, re.MULTILINE)
    assert len(names) > 10
    page = document("docs/operations.md")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_exit_code_stands_in_the_operations_page() -> None:
    listed = {row[0]: row[1] for row in rows(document("docs/operations.md")) if len(row) == 2}
    for code, meaning in MEANINGS.items():
        assert listed[str(int(code))].startswith(meaning)


def test_every_feature_has_a_known_state_and_names_tests_that_exist() -> None:
    features = [row for row in rows(document("docs/features.md")) if re.fullmatch(r"[A-Z]\d+", row[0])]
    assert len({row[0] for row in features}) == len(features) > 60
    for feature, _, state, shown_by in features:
        # A number is shown by a benchmark, everything else by a test.
        places = "tests|bench" if feature.startswith("N") else "tests"
        tests = re.findall(rf"`((?:{places})/[^`]*)`", shown_by)
        assert state in ("works", "partly", "not yet"), feature
        assert bool(tests) == (state != "not yet"), feature
        assert [path for path in tests if not (ROOT / path).exists()] == [], feature


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.path)
def test_links_between_documents_lead_somewhere(file: SourceFile) -> None:
    folder = (ROOT / file.path).parent
    for target in re.findall(r"\]\(([^)]+)\)", file.text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = folder / path if path else ROOT / file.path
        assert found.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads], target


@pytest.mark.parametrize("file", GUIDES, ids=lambda file: file.path)
def test_every_module_that_a_document_names_exists(file: SourceFile) -> None:
    named = re.findall(r"`([\w/.]+\.py|(?:src|tests|bench|sim|docs)/[\w/.]+)", file.text)
    known = [f"/{known.path}" for known in text_files()]
    assert [
        path
        for path in named
        if not any(there.endswith(f"/{path}") for there in known if path[-3:] == ".py") and not (ROOT / path).exists()
    ] == []


@pytest.mark.parametrize("file", GUIDES, ids=lambda file: file.path)
def test_every_name_that_a_document_places_in_a_module_is_there(file: SourceFile) -> None:
    modules = {f"/{known.path}": known.text for known in python_files()}
    for names, path in re.findall(r"((?:`\w+`(?:, | and )?)+) in `([\w/]+\.py)`", file.text):
        texts = [text for known, text in modules.items() if known.endswith(f"/{path}")]
        for name in re.findall(r"\w+", names.replace(" and ", " ")):
            assert any(re.search(rf"\b{name}\b", text) for text in texts), f"{name} in {path}"


def test_every_decision_stands_in_the_list_of_decisions() -> None:
    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", document("docs/decisions/README.md"))
    written = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert sorted(listed) == written


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.path)
def test_only_commands_and_flags_that_exist_are_documented(file: SourceFile) -> None:
    assert [fault for line in commands_in(file.text) if (fault := fault_of(line))] == []


def test_only_commands_and_flags_that_exist_are_named_in_the_source() -> None:
    strings = [(file.path, *text) for file in python_files() if file.top == "src" for text in texts_of(file.tree)]
    commands = [(path, line, command) for path, line, text in strings for command in commands_in(text)]
    assert len(commands) > 80
    assert [f"{path}:{line}: {fault}" for path, line, command in commands if (fault := fault_of(command))] == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("`martlet topic describe orders` shows it", 0),
        ("`martlet topic show orders` shows it", 1),
        ("lost: martlet partition elect --unclean", 0),
        ("  martlet consume hello --follow-me", 1),
        ("from martlet import __version__", 0),
    ],
)
def test_a_command_that_is_not_there_is_found(text: str, faults: int) -> None:
    assert len([line for line in commands_in(text) if fault_of(line)]) == faults


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.path)
def test_only_verbs_of_dev_that_exist_are_documented(file: SourceFile) -> None:
    script = document("dev")
    for verb in re.findall(r"\./dev ([a-z]+)", file.text):
        assert re.search(rf"^{verb}\)", script, re.MULTILINE), verb
