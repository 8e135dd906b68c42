"""The tape kept a second time, in the object store, so that a run survives its NATS servers."""
