"""Ask LexyBrain: conversations about a marketplace, with plans, quotas, feedback and training."""

from rag_app.surfaces.lexybrain import capabilities as capabilities  # registers what types and detection read
