"""A short fuzz run in every test run: twenty thousand damaged requests over all APIs. `./dev fuzz` sends a million."""

import random
from pathlib import Path

from bench.fuzz.corpus import Corpus
from bench.fuzz.mutations import Mutator
from bench.fuzz.run import fuzz

from martlet.wire.headers import read_request_header
from tests.broker.sample_requests import served_versions

FRAMES = 20_000


def test_twenty_thousand_damaged_requests_neither_fail_nor_grow_the_broker(tmp_path: Path) -> None:
    result = fuzz(FRAMES, seed=7, seconds=100, directory=tmp_path)
    assert not result.complaints, result.report()
    assert result.frames == FRAMES
    assert result.answered > FRAMES // 10, "enough frames get past the framing"
    assert result.closed > FRAMES // 10, "enough frames are refused"


def test_the_corpus_holds_every_api_and_version_served() -> None:
    corpus = Corpus(random.Random(1), [bytes(16)])
    present = {(request.key, request.version) for variants in corpus.requests for request in variants}
    assert present == {(key, version) for key, versions in served_versions().items() for version in versions}
    for variants in corpus.requests:
        for request in variants:
            header = read_request_header(memoryview(request.frame)[4:])
            assert (header.api_key, header.api_version) == (request.key, request.version)


def test_a_seed_gives_the_same_frames() -> None:
    runs = []
    for _ in range(2):
        chance = random.Random(42)
        runs.append(Mutator(chance, Corpus(chance, [bytes(16)])).frames(2000))
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1500
