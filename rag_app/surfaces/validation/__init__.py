"""Raw results, measured against what was expected."""
