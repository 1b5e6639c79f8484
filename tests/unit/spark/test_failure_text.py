"""What is left of Spark's traces for a person to read."""

from martlet.spark.pipelines.failure_text import failure_text, is_passing

FROM_PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_ERROR]
Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise MessagesLost("x")
martlet.spark.failures.MessagesLost: orders/0: offsets 5 to 7 are gone; start from earliest
 SQLSTATE: 38000 SQLSTATE: XXKST
"""
FROM_A_USER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "clean.py", line 3, in clean
ValueError: amount is not a number

During handling of the above exception:
Traceback (most recent call last):
  File "clean.py", line 9, in clean
KeyError: 'amount'
"""


def test_an_exception_of_ours_is_reported_in_its_own_words() -> None:
    assert failure_text(RuntimeError(FROM_PYTHON)) == "orders/0: offsets 5 to 7 are gone; start from earliest"


def test_an_exception_of_others_keeps_its_kind_and_the_last_one_counts() -> None:
    assert failure_text(RuntimeError(FROM_A_USER)) == "KeyError: 'amount'"


def test_without_a_trace_the_words_of_the_cause_are_reported() -> None:
    text = "[STREAM_FAILED] Query [id = 1] terminated with exception: the disk is full SQLSTATE: XXKST\n at x(Y)"
    assert failure_text(RuntimeError(text)) == "the disk is full"


def test_anything_else_is_reported_by_its_first_line_or_its_kind() -> None:
    assert failure_text(RuntimeError("\n[PATH_NOT_FOUND] no such path. SQLSTATE: 42K03\n more")) == (
        "[PATH_NOT_FOUND] no such path."
    )
    assert failure_text(RuntimeError()) == "RuntimeError"


def test_a_process_that_did_not_start_in_time_may_start_the_next_time() -> None:
    assert is_passing(RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."))
    assert not is_passing(RuntimeError(FROM_PYTHON))
