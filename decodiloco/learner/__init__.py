"""An independent trainer that never waits. Meets the syncer only in the record."""
