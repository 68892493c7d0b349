"""From documents to chunks: readers, metadata, chunking, and the ingest that keeps a store in step with files."""
