"""Whether the compiled codec is there.

Rules: the only importer of `native.py`, whose source would also run interpreted, but slower than everything else; it
counts as present only if an extension module answered the import. A compiled module that was built for another librt
refuses to load, and then counts as absent too.

Proved by: tests/unit/wire/test_records_index.py
"""

from types import ModuleType

_INTERPRETED = (".py", ".pyc")


def _find() -> bool:
    try:
        from martlet.wire.records import native
    except (ImportError, ValueError):
        return False
    return is_extension(native)


def is_extension(module: ModuleType) -> bool:
    """Whether the module is machine code rather than interpreted source."""
    return not str(module.__file__).endswith(_INTERPRETED)


IS_COMPILED = _find()
