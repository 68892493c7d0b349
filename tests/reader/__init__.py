"""What the reader is trained and measured with: documents of made-up organizations, and questions about them."""
