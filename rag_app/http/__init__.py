"""HTTP: who asks, how often, in which shape; `server.api` puts it together. The routes are the surfaces'."""
