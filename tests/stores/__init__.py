"""Tests of the metadata stores that need a real server."""
