"""Tests of `martlet.stores` on real files."""
