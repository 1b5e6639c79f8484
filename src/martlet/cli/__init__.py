"""The `martlet` command, one file per noun; `main` is where it starts.

Importing any module here must stay cheap, because every `--help` and every key press of shell completion pays for it:
the broker, the client and the codecs are imported inside the verbs that use them. Data goes to standard output,
everything said about it to standard error; every failure becomes an exit code of `exit_codes` in one place, `failures`.
"""
