"""Tests of `martlet.cluster`: pure, so no store and no event loop is needed."""
