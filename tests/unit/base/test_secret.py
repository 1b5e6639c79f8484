"""Secrets: no way of printing shows one."""

import json
import pickle

import pytest

from martlet.base.secret import Secret

CANARY = "correct-horse-battery"


def test_no_text_form_shows_the_value() -> None:
    secret = Secret(CANARY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>20}",
        f"{secret:>10}",
        repr([secret]),
        repr((secret,)),
    ]
    assert not [text for text in shown if CANARY in text]
    assert str(secret) == "***"
    assert secret.reveal() == CANARY


def test_a_secret_is_neither_pickled_nor_written_as_json() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(CANARY))
    with pytest.raises(TypeError):
        json.dumps({"password": Secret(CANARY)})


def test_secrets_compare_by_value_and_have_no_hash() -> None:
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret("another")
    assert Secret(CANARY) != CANARY
    with pytest.raises(TypeError):
        hash(Secret(CANARY))


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Secret("")
