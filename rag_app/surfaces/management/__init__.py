"""What administrators see and do of an installation: feedback, usage, keys and members, validation runs, the audit."""
