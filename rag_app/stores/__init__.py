"""The vector stores. Each file is the only code that knows its vendor; tests/stores/ is what all of them promise."""
