"""Builds the compiled record codec where it can be built, and installs without it where it cannot.

The codec has a plain and a numpy twin with the same results, so a missing compiler, missing headers or a failing build
must never stop an installation: one line says what happened. MARTLET_PURE=1 asks for no compilation.
Everything else about the project is in pyproject.toml.
"""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE_SOURCE = "src/martlet/wire/records/native.py"


def say(outcome: str) -> None:
    print(f"martlet: {outcome}", file=sys.stderr)


def say_pure(reason: object) -> None:
    lines = str(reason).strip().splitlines()
    say(f"the record codec is NOT compiled, the pure one is installed ({lines[0] if lines else reason!r})")


def translate_to_c() -> list[Extension]:
    """The extension module that mypyc makes of the source; empty if it cannot."""
    if os.environ.get("MARTLET_PURE", "") not in ("", "0"):
        say_pure("MARTLET_PURE is set")
        return []
    try:
        from mypyc.build import mypycify

        return list(mypycify([NATIVE_SOURCE], opt_level="3"))
    except ImportError as error:
        say_pure(f"mypyc is missing: {error}")
    except SystemExit as error:
        # mypyc prints what is wrong with the source and exits.
        say_pure(f"mypyc stopped with {error.code}")
    except Exception as error:
        say_pure(f"{type(error).__name__}: {error}")
    return []


class BuildIfPossible(build_ext):
    """Compiles; a failure leaves the installation pure."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.extensions = []
            say_pure(f"{type(error).__name__}: {error}")
        else:
            if self.extensions:
                say("the record codec is compiled")


setup(ext_modules=translate_to_c(), cmdclass={"build_ext": BuildIfPossible})
