"""Tables and lines of JSON as people's tools write them."""
