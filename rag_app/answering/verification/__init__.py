"""Every sentence of an answer against its sources: kinds, figures, words, and the verdict on a whole text.

No model is asked. A check takes less than a millisecond a sentence. What is checked and what is not: docs/answering.md.
"""
