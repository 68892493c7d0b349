"""Operations on an installation: generations of indexes, and exporting or erasing one person's data."""
