"""Record folders: schema, manifest, reading and writing."""
