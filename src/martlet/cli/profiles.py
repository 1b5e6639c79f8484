"""Named connections: the file that remembers them, and which of them verbs use.

One TOML file for each person, found by `profiles_path`. It names addresses and a client configuration, and holds no
password itself: that stays in the client configuration, which others may not read.

Rules: what is on the command line always wins; `chosen` says the rest of the order in one place. The file is replaced
as a whole, so that a reader never sees half of one.

Proved by: tests/unit/cli/test_profiles.py
"""

import dataclasses
import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from martlet.base.addresses import parse_bootstrap
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed

PROFILES_VARIABLE: Final = "MARTLET_PROFILES"
PROFILE_VARIABLE: Final = "MARTLET_PROFILE"
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "bootstrap": (str,),
    "client-config": (str,),
    "timeout": (int, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a connection consists of; what is None is as it is without a profile."""

    bootstrap: str | None = None
    client_config: str | None = None
    timeout: float | None = None

    def as_data(self) -> dict[str, str | float]:
        """Under the names that the options have, without what is not there."""
        values = {field.name.replace("_", "-"): getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """All there are, by name, and the one in use."""

    in_use: str | None = None
    by_name: Mapping[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        """The profile of this name; CommandFailed with the nearest name when there is none."""
        found = self.by_name.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.by_name, n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            next_step = f"{guess}`martlet profile list` shows the profiles"
            raise CommandFailed(ExitCode.NOT_FOUND, f"there is no profile {name!r}", next_step)
        return found

    def with_profile(self, name: str, profile: Profile) -> "Profiles":
        return dataclasses.replace(self, by_name={**self.by_name, name: profile})

    def without(self, name: str) -> "Profiles":
        self.get(name)
        left = {other: profile for other, profile in self.by_name.items() if other != name}
        return Profiles(in_use=None if self.in_use == name else self.in_use, by_name=left)

    def using(self, name: str | None) -> "Profiles":
        if name is not None:
            self.get(name)
        return dataclasses.replace(self, in_use=name)

    def chosen(self, asked_for: str | None) -> Profile:
        """The profile asked for by --profile or MARTLET_PROFILE, else the one in use, else an empty one."""
        name = asked_for or self.in_use
        return self.get(name) if name else Profile()


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this person's profiles are: MARTLET_PROFILES, else the usual place for settings of programs."""
    if named := environment.get(PROFILES_VARIABLE):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "martlet" / "profiles.toml"


def read_profiles(path: Path | None = None) -> Profiles:
    """What the file says; no file is no profiles. CommandFailed with a sentence when it cannot be understood."""
    path = path or profiles_path()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandFailed(ExitCode.NOT_ALLOWED, f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _not_understood(path, str(error)) from None
    entries = data.get("profile", {})
    in_use = data.get("in-use")
    if not isinstance(entries, dict) or not isinstance(in_use, str | None):
        raise _not_understood(path, "it has no [profile.NAME] tables, or in-use is not a name")
    return Profiles(in_use=in_use or None, by_name={name: _profile(path, name, entries[name]) for name in entries})


def write_profiles(profiles: Profiles, path: Path | None = None) -> None:
    """Replace the file; made with its directory when it is the first profile."""
    path = path or profiles_path()
    lines = [] if profiles.in_use is None else [f"in-use = {_quoted(profiles.in_use)}\n"]
    for name, profile in sorted(profiles.by_name.items()):
        lines.append(f"\n[profile.{_quoted(name)}]\n")
        lines += [
            f"{key} = {_quoted(value) if isinstance(value, str) else value}\n"
            for key, value in profile.as_data().items()
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text("".join(lines), "utf-8")
    unfinished.replace(path)


def _profile(path: Path, name: str, entry: Any) -> Profile:
    if not isinstance(entry, dict):
        raise _not_understood(path, f"profile {name!r} is not a table")
    for key, value in entry.items():
        if key not in _KINDS:
            raise _not_understood(path, f"profile {name!r} has a {key!r}; there are {', '.join(_KINDS)}")
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            raise _not_understood(path, f"{key} of profile {name!r} is not what it should be: {value!r}")
    profile = Profile(**{key.replace("-", "_"): value for key, value in entry.items()})
    try:
        parse_bootstrap(profile.bootstrap or "localhost:9092")
    except ValueError as error:
        raise _not_understood(path, f"bootstrap of profile {name!r}: {error}") from None
    return profile


def _not_understood(path: Path, why: str) -> CommandFailed:
    return CommandFailed(ExitCode.USAGE, f"{path} cannot be understood: {why}", "correct it, or remove it")


def _quoted(text: str) -> str:
    """A basic string of TOML, which JSON's escapes are valid in."""
    return json.dumps(text).replace("\x7f", "\\u007f")
