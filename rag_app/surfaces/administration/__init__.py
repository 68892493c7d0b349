"""What operators do: generations of indexes, and what is kept about people, which is told, erased and exported."""
