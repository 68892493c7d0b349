"""From documents to hits to be: readers, metadata, chunking, and the job that keeps a store in step with files."""
