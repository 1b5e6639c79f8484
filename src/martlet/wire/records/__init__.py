"""Records inside batches: one parser with three implementations, one encoder, and friendly records on top.

    index.py       what callers use: RecordIndex, index_records(), unpack_batches()
    native.py      the index compiled by mypyc, when the installation found a compiler
    vectorised.py  the same index on numpy
    plain.py       the same index in plain Python; also the definition of what is valid
    encode.py      records to bytes
    record.py      one object per record, for those who read few

Nothing is imported here, so that `wire/batch.py` can use the encoder and the index can use `wire/batch.py`.
"""
