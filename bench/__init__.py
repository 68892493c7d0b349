"""`make bench`: what a search costs, side by side with the same by hand and with stock LlamaIndex, in one run."""
