"""`python -m martlet` is the `martlet` command."""

from martlet.cli.main import main

if __name__ == "__main__":
    main()
