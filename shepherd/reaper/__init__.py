"""All that touches hostile bytes: fetching, documents, and the confined processes for both. Never imports dispatch."""
