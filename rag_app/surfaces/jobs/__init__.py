"""`/api/v1/jobs`: what becomes of documents that were handed over."""
