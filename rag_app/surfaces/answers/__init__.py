"""What users think of answers that were given outside of conversations."""
