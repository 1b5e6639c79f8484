"""The test kit that ships with Martlet: a pytest plugin and a real broker that runs inside the test's process."""
