"""Builds the compiled record codec where it can be built, and installs without it where it cannot.

The codec has a plain and a numpy twin with the same results, so a missing compiler, missing headers or a failing build
must never stop an installation: one line says what happened (pip shows it with -v; `codec_name()` tells at any time).
MARTLET_PURE=1 asks for no compilation. Everything else about the project is in pyproject.toml.
"""

import os
import sys
from pathlib import Path
from textwrap import shorten

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

RECORDS = Path("src", "martlet", "wire", "records")
BUILDING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"}


def say(outcome: str) -> None:
    print(f"martlet: {outcome}", file=sys.stderr)


def stay_pure(reason: str) -> None:
    """Say why, and drop modules of an earlier build in place: they would answer for a source they no longer match."""
    for pattern in ("native*.so", "native*.pyd"):
        for stale in RECORDS.glob(pattern):
            stale.unlink()
    say(f"the record codec is NOT compiled, the pure one is installed ({shorten(reason, 160)})")


def translate_to_c() -> list[Extension]:
    """The extension modules that mypyc makes of the source; none if it cannot."""
    if BUILDING.isdisjoint(sys.argv):
        # Only metadata is wanted; translating takes seconds.
        return []
    if os.environ.get("MARTLET_PURE", "") not in ("", "0"):
        stay_pure("MARTLET_PURE is set")
        return []
    try:
        from mypyc.build import mypycify

        return list(mypycify([str(RECORDS / "native.py")], opt_level="3"))
    except ImportError as error:
        stay_pure(f"mypyc is missing: {error}")
    except SystemExit as error:
        # mypyc has printed what it dislikes, and exits.
        stay_pure(f"mypyc stopped: {error.code}")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the tools, the installation goes on
        stay_pure(f"{type(error).__name__}: {error}")
    return []


class BuildIfPossible(build_ext):
    """Compiles; a failure leaves the installation pure."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the compiler, the installation goes on
            self.extensions = []
            stay_pure(f"{type(error).__name__}: {error}")
        else:
            if self.extensions:
                say("the record codec is compiled")


setup(ext_modules=translate_to_c(), cmdclass={"build_ext": BuildIfPossible})
