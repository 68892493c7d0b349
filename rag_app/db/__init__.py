"""PostgreSQL: services that are still without a room of their own."""
