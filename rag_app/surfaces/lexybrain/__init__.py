"""Ask LexyBrain: conversations about a marketplace, with plans, quotas, feedback and training."""
