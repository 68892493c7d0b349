"""What an organization has put in: uploads, lists, reads, changes and deletes sources (`/api/v1/sources`)."""
