"""An organization's sources: uploads, lists, reads, changes and deletes them (`/api/v1/sources`)."""
