"""Multiple choice: RACE, SWAG and own tables."""
