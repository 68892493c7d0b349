"""Search and cited answers over what an organization knows."""
