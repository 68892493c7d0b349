"""The vector stores. Each file is the only code for its vendor; tests/stores/ is the contract of all of them."""
