"""Which samples make which line of a plot, and what the tools of the comparison read from others' output."""

import struct

import pytest
from bench.peers.plots import PLOTS, Plot, Point, lines_of
from bench.peers.profile import summary
from bench.peers.report import RATE, Sample
from bench.peers.workloads.throughput import next_offset
from bench.peers.workloads.tools import consumer_rate, producer_rate
from bench.processes import ProcessFailed

PLOT = Plot("file", "title", "publish", RATE, "value_bytes", "cached")


def sample(system: str, value: float, case: str = "1 KB, cached", **point: float) -> Sample:
    return Sample("publish", case, RATE, "msg/s", value, system, 0, point)


def test_a_line_has_the_median_and_the_spread_of_each_place() -> None:
    samples = [sample("kafka", value, value_bytes=100) for value in (3, 1, 8)]
    samples.append(sample("kafka", 5, value_bytes=10))
    assert lines_of(PLOT, samples) == {"kafka": [Point(10, 5, 5, 5), Point(100, 3, 1, 8)]}


def test_samples_of_other_cases_and_without_a_place_are_left_out() -> None:
    samples = [sample("kafka", 1, "1 KB, flushed", value_bytes=100), sample("kafka", 1)]
    assert lines_of(PLOT, samples) == {}


def test_a_bar_needs_no_place() -> None:
    assert lines_of(Plot("file", "title", "publish", RATE), [sample("nats", 4)]) == {"nats": [Point(0, 4, 4, 4)]}


def test_every_plot_has_a_file_of_its_own() -> None:
    assert len({plot.file for plot in PLOTS}) == len(PLOTS)


def test_the_next_offset_is_behind_the_last_whole_batch() -> None:
    batch = struct.pack(">qi11xi", 10, 40, 4) + bytes(52 - 27)
    cut = struct.pack(">qi11xi", 15, 40, 0)
    assert next_offset(memoryview(batch + cut), 10) == 15
    assert next_offset(memoryview(cut), 15) == 15


def test_rates_are_read_from_what_kafkas_programs_print() -> None:
    text = "100 records sent, 5.0 records/sec (…)\n200 records sent, 7.50 records/sec (0.01 MB/sec), 1 ms avg latency\n"
    assert producer_rate(text) == 7.5
    table = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-11-16 06:00:00:000, 2026-11-16 06:00:04:000, 1.9, 0.4, 2000, 500.0, 3000, 1000, 1.9, 2000.0\n"
    )
    assert consumer_rate(table) == 2000.0
    with pytest.raises(ProcessFailed):
        producer_rate("an error")
    with pytest.raises(ProcessFailed):
        consumer_rate("an error")


def test_a_profile_shows_own_and_whole_shares() -> None:
    text = summary(["main;read;copy 3", "main;write 1", "thread;epoll_wait (libc.so.6) 7", "broken"])
    assert text.splitlines()[0] == "4 samples at work, 7 of all threads waiting"
    assert " 75.0%  75.0%  copy" in text
    assert " 25.0%  25.0%  write" in text
