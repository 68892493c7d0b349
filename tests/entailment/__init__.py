"""Claims about passages, labelled (claims.py), and what the check of answers does with them."""
