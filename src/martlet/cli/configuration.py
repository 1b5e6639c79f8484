"""A broker's settings from flags, environment, file and defaults, each value with its origin.

A flag beats `MARTLET_<KEY>`, which beats the file, which beats the default. The file is the one named by `--config` or
MARTLET_CONFIG, else `martlet.toml` in the working directory if there is one. Keys, defaults and
bounds are those of `BrokerSettings`.

A wrong key or value is refused with a sentence that names where it stands and what is allowed. An unknown MARTLET_*
variable is only noted, never refused: in Kubernetes a service called "martlet" puts variables of that name into every
container.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from martlet.base.addresses import parse_address
from martlet.broker.ground.listeners import exposed_listeners
from martlet.broker.ground.security_settings import sasl_mechanisms, super_users
from martlet.broker.ground.settings import Bounds, BrokerSettings
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.profiles import PROFILE_VARIABLE, PROFILES_VARIABLE
from martlet.cluster.store import StoreRefused

DEFAULT_FILE: Final = "martlet.toml"
FILE_VARIABLE: Final = "MARTLET_CONFIG"
PREFIX: Final = "MARTLET_"

_OTHER_VARIABLES: Final = frozenset(
    {
        FILE_VARIABLE,
        PROFILE_VARIABLE,
        PROFILES_VARIABLE,
        "MARTLET_BOOTSTRAP",
        "MARTLET_TIMEOUT",
        "MARTLET_PURE",
        "MARTLET_CLIENT_CONFIG",
    }
)
_KUBERNETES: Final = ("_SERVICE_HOST", "_SERVICE_PORT", "_PORT", "_TCP", "_UDP", "_ADDR", "_PROTO")

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})

DEFAULTS: Final = {field.name: field.default for field in fields(BrokerSettings)}
EXPLANATIONS: Final = {field.name: str(field.metadata["help"]) for field in fields(BrokerSettings)}
_BOUNDS: Final[Mapping[str, Bounds]] = {field.name: field.metadata["bounds"] for field in fields(BrokerSettings)}


class Origin(NamedTuple):
    """Where a value comes from: the kind of place and its name there."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


_DEFAULT: Final = Origin("default", "")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings in effect, the origin of each, and what is worth a note."""

    settings: BrokerSettings
    origins: Mapping[str, Origin]
    notes: tuple[str, ...]


class SettingsError(CommandFailed):
    """A setting that cannot be used."""

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(ExitCode.USAGE, message, next_step)


def load_configuration(
    flags: Mapping[str, tuple[str, str]], *, environment: Mapping[str, str], file: str | None = None
) -> Configuration:
    """Put the layers together. `flags` holds by key the flag's name and its text; None for no flag is left out."""
    values: dict[str, object] = dict(DEFAULTS)
    origins: dict[str, Origin] = dict.fromkeys(DEFAULTS, _DEFAULT)

    def take(key: str, value: object, origin: Origin) -> None:
        values[key] = check_value(key, value, f"{origin.kind} {origin.name}")
        origins[key] = origin

    path = file or environment.get(FILE_VARIABLE) or (DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None)
    if path is not None:
        for key, value in _read_file(path).items():
            take(key, value, Origin("file", f"{path}: {key}"))
    notes = []
    for variable, text in sorted(environment.items()):
        key = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or variable in _OTHER_VARIABLES or variable.endswith(_KUBERNETES):
            continue
        if key in DEFAULTS:
            take(key, text, Origin("environment", variable))
        else:
            notes.append(f"the environment variable {variable} names no setting and is ignored{_did_you_mean(key)}")
    for key, (flag, text) in flags.items():
        if key not in DEFAULTS:
            raise SettingsError(f"{flag}: there is no setting {key!r}{_did_you_mean(key)}", _SEE_ALL)
        take(key, text, Origin("flag", flag))
    return Configuration(_settings(values, origins), origins, tuple(notes))


_SEE_ALL: Final = "`martlet config show` lists every setting with its value"


def _settings(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> BrokerSettings:
    for lower, bounds in _BOUNDS.items():
        upper = bounds.not_more_than
        if upper and values[lower] > values[upper]:
            raise SettingsError(f"{lower} ({values[lower]}) is more than {upper} ({values[upper]})", _SEE_ALL)
    if values["listeners"] and origins["kafka"] is not _DEFAULT:
        raise SettingsError(
            f"{origins['kafka']} and {origins['listeners']} both say where clients are served",
            "give the address among the listeners and leave `kafka` out",
        )
    settings = BrokerSettings(**values)
    try:
        exposed = exposed_listeners(settings)
        sasl_mechanisms(settings.sasl_mechanisms)
        super_users(settings.super_users)
    except ValueError as error:
        key = str(error).partition(":")[0]
        raise SettingsError(f"{origins[key]}: {error}") from None
    if exposed:
        one = exposed[0]
        origin = origins["listeners" if settings.listeners else "kafka"]
        raise SettingsError(
            f"{origin}: the listener {one.name} at {one.address} would let in anybody from other machines",
            f"make it sasl_tls, or say that this is meant: --set insecure_listen={one.name}",
        )
    return settings


def _read_file(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as stream:
            content = tomllib.load(stream)
    except FileNotFoundError:
        raise SettingsError(f"there is no configuration file {path}") from None
    except OSError as error:
        raise SettingsError(f"the configuration file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the configuration file {path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration file {path} is not valid TOML: {error}") from None
    for key in content:
        if key not in DEFAULTS:
            raise SettingsError(f"{path}: there is no setting {key!r}{_did_you_mean(key)}", _SEE_ALL)
    return content


def _did_you_mean(key: str) -> str:
    close = difflib.get_close_matches(key, DEFAULTS, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_value(key: str, value: object, where: str) -> object:
    """The value in the setting's own type; `value` is text, or what TOML made of it."""
    default = DEFAULTS[key]
    if isinstance(default, bool):
        return _boolean(key, value, where)
    if isinstance(default, int):
        return _number(key, value, where)
    return _text(key, value, where)


def _refuse(where: str, key: str, value: object, allowed: str) -> SettingsError:
    return SettingsError(f"{where}: {key} cannot be {value!r}; allowed is {allowed}")


def _boolean(key: str, value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise _refuse(where, key, value, "true or false")


def _number(key: str, value: object, where: str) -> int:
    lowest = _BOUNDS[key].at_least
    allowed = f"a whole number from {lowest} up"
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise _refuse(where, key, value, allowed) from None
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise _refuse(where, key, value, allowed)
    return value


def _text(key: str, value: object, where: str) -> str:
    bounds = _BOUNDS[key]
    choices = bounds.one_of
    allowed = ", ".join(choices) if choices else "HOST:PORT" if bounds.is_address else "text"
    if not isinstance(value, str):
        raise _refuse(where, key, value, allowed)
    text = value.strip()
    if not text:
        if not DEFAULTS[key]:
            return ""
        raise _refuse(where, key, value, f"{allowed}, not empty")
    if choices and text not in choices:
        raise _refuse(where, key, value, allowed)
    if bounds.is_address:
        try:
            return str(parse_address(text, default_port=parse_address(str(DEFAULTS[key])).port))
        except ValueError as error:
            raise SettingsError(f"{where}: {key}: {error}") from None
    if key == "metadata":
        _check_metadata(text, where)
    return text


def _check_metadata(text: str, where: str) -> None:
    # Imported here: most commands never need a store, and this one brings TLS with it.
    from martlet.stores.etcd_options import parse_etcd_address

    try:
        parse_etcd_address(text)
    except StoreRefused as error:
        raise SettingsError(f"{where}: metadata: {error}") from None
