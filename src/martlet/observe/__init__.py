"""What lets people see inside a running Martlet process: log lines and metrics.

Imports only `base`. Nothing here decides anything: a broker behaves the same without it.
"""
