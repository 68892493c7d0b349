"""PostgreSQL: who there is, what stands in which index, and how often somebody asked."""
