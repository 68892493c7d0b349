"""The way to PostgreSQL: one pool, short transactions that know their scope, tables, migrations, the private server."""
