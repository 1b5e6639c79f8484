"""Settings of security that are lists of words: read here, refused with a ValueError that begins with the setting.

Proved by: tests/unit/broker/ground/test_security_settings.py
"""

from typing import Final

from martlet.security.sasl import Mechanism

_OFFERED: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512, Mechanism.PLAIN)


def sasl_mechanisms(text: str) -> tuple[Mechanism, ...]:
    """The mechanisms that a setting names; raises ValueError with a sentence."""
    found = []
    for word in text.split(","):
        mechanism = next((one for one in _OFFERED if one.value == word.strip().upper()), None)
        if mechanism is None:
            allowed = ", ".join(one.value for one in _OFFERED)
            raise ValueError(f"sasl_mechanisms: {word.strip()!r} is not offered; allowed are {allowed}")
        found.append(mechanism)
    return tuple(dict.fromkeys(found))


def super_users(text: str) -> tuple[str, ...]:
    """The principals that a setting names; raises ValueError with a sentence."""
    found = tuple(part.strip() for part in text.split(";") if part.strip())
    for principal in found:
        if not principal.startswith("User:") or principal == "User:":
            raise ValueError(f"super_users: {principal!r} is no principal; write User:NAME, several by semicolons")
    return found
