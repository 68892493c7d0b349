"""HTTP: who asks, how often, in which shape; `server.api` puts it together. The rest is surfaces, one file per contract."""
