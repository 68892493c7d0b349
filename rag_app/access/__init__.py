"""Who may do what, and how often: people, tokens, API keys, limits, the audit, and what is kept about one user."""
