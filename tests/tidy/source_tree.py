"""The project's own files as data for the tidy rules: paths relative to the root, text, syntax tree."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_NOT_OURS = {"__pycache__", "build", "martlet-data", "results"}
_TEXT_ENDINGS = {".cfg", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}


@dataclass(frozen=True)
class SourceFile:
    """One file; `path` is relative to the root, with forward slashes."""

    path: str
    text: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def top(self) -> str:
        """The folder below the root it is in: src, tests, bench, docs; empty for files of the root itself."""
        return self.path.split("/")[0] if "/" in self.path else ""

    @property
    def package(self) -> str:
        """The package of Martlet it belongs to, or empty."""
        parts = self.path.split("/")
        return parts[2] if parts[:2] == ["src", "martlet"] and len(parts) > 3 else ""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)


@cache
def text_files() -> tuple[SourceFile, ...]:
    """Every text file of the project, whether or not it is under version control yet; `.git` is one in a worktree."""
    return tuple(SourceFile(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in sorted(_walk(ROOT)))


@cache
def python_files() -> tuple[SourceFile, ...]:
    return tuple(file for file in text_files() if file.path.endswith(".py"))


def packages() -> list[str]:
    """The packages of Martlet."""
    return sorted(path.parent.name for path in (ROOT / "src" / "martlet").glob("*/__init__.py"))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            is_hidden = path.name.startswith(".") and path.name != ".ci"
            if not is_hidden and path.name not in _NOT_OURS and not path.name.endswith(".egg-info"):
                yield from _walk(path)
        elif path.suffix in _TEXT_ENDINGS and not path.is_symlink() and path.name != ".git":
            yield path
