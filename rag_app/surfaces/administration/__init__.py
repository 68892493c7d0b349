"""What operators do with what is kept about people: tell it, and take it away."""
