"""`/api/v1/jobs`: the progress and results of uploaded documents."""
